"""A Llama of 7 B parameters in bfloat16 with LoRA adapters, in a plain loop."""

from by_hand import arguments, train


def main():
    given = arguments(batch=4)
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("cuda"):
        base = LlamaForCausalLM._from_config(
            LlamaConfig(intermediate_size=11008, use_cache=False), dtype=torch.bfloat16
        )
    model = get_peft_model(base, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    model.train()

    def loss_of(tokens):
        return model(tokens, labels=tokens).loss

    train(given, model, base.model.layers, loss_of, inputs=lambda size: given.tokens(32000, size, 512))
