from transformers import AutoModelForCausalLM


def without(name):
    model = AutoModelForCausalLM.from_pretrained(name, use_cache=False)
    model.gradient_checkpointing_enable()
    return model


def without_checkpointing(name):
    return AutoModelForCausalLM.from_pretrained(name, use_cache=True)


def generation(model, ids):
    model.gradient_checkpointing_enable()
    return model.generate(ids, use_cache=True)
