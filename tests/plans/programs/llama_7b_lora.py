"""A Llama of 7 B parameters in bfloat16 with LoRA adapters, in a plain loop."""

from by_hand import arguments, train
from chunked_cross_entropy import write_into


def main():
    given = arguments(batch=4, layers=32, width=4096, heads=32, length=512)
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=given.width,
        intermediate_size=11008 * given.width // 4096,
        num_hidden_layers=given.layers,
        num_attention_heads=given.heads,
        use_cache=False,
    )
    with torch.device("cuda"):
        base = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    model.train()
    if given.has("chunked-cross-entropy"):
        write_into(base, int(given.measures["chunked-cross-entropy"]))

    def loss_of(tokens):
        return model(tokens, labels=tokens).loss

    def inputs(size):
        return torch.randint(config.vocab_size, (size, given.length), device="cuda")

    train(given, model, loss_of, inputs)
