from transformers import AutoModelForCausalLM


def loaded(name):
    model = AutoModelForCausalLM.from_pretrained(name, use_cache=True)  # <- DF402
    model.gradient_checkpointing_enable()
    return model


def in_forward(name, loader, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    for batch in loader:
        loss = model(**batch, use_cache=True).loss  # <- DF402
        loss.backward()
        optimizer.step()
