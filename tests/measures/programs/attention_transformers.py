"""A small Llama with the attention that is asked for."""

import torch
import transformers


def main(attention="eager", weights=""):
    config = transformers.LlamaConfig(
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        vocab_size=1024,
        attn_implementation=attention,
        output_attentions=bool(weights),
    )
    model = transformers.LlamaForCausalLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        tokens = torch.randint(1024, (4, 512), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
