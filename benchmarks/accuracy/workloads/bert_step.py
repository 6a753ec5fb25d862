"""Train BERT-large on two classes with sequences of 512 tokens, as transformers' Trainer did at the start of 2022.

    python bert_step.py --batch 1 --accumulate 4 --checkpoint

Gradients are set to zero in place, AdamW goes one parameter at a time, attention keeps its scores.
"""

import argparse
from contextlib import nullcontext

import torch
import torch.nn.functional as F
import transformers
from old_torch import softmax_that_keeps_its_input


def optimizer_of(name: str, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name == "adafactor":
        return transformers.Adafactor(parameters, lr=5e-5, scale_parameter=False, relative_step=False)
    if name == "adam8bit":
        import bitsandbytes

        return bitsandbytes.optim.Adam8bit(parameters, lr=5e-5)
    return torch.optim.AdamW(parameters, lr=5e-5, foreach=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--amp", action="store_true", help="float16 autocast and a GradScaler")
    parser.add_argument("--optimizer", choices=["adamw", "adafactor", "adam8bit"], default="adamw")
    parser.add_argument("--softmax-keeps-input", action="store_true", help="as it did before PyTorch 1.11")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    if arguments.softmax_keeps_input:
        F.softmax = softmax_that_keeps_its_input
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=2
    )
    config._attn_implementation = "eager"
    model = transformers.BertForSequenceClassification(config).to("cuda")
    if arguments.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        model.enable_input_require_grads()
    model.train()
    optimizer = optimizer_of(arguments.optimizer, list(model.parameters()))
    scaler = torch.amp.GradScaler("cuda", enabled=arguments.amp)

    def loss_of_batch() -> torch.Tensor:
        tokens = torch.randint(100, 30_000, (arguments.batch, 512)).to("cuda")
        labels = torch.randint(2, (arguments.batch,)).to("cuda")
        with torch.autocast("cuda", torch.float16) if arguments.amp else nullcontext():
            loss = model(input_ids=tokens, labels=labels).loss
        scaler.scale(loss / arguments.accumulate).backward()
        return loss.detach()

    total = torch.zeros((), device="cuda")
    for _ in range(arguments.steps):
        for _ in range(arguments.accumulate):
            total += loss_of_batch()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)


if __name__ == "__main__":
    main()
