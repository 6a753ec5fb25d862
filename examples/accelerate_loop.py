"""A loop of one's own under Accelerate, as its documentation writes it, with gradient accumulation.

dryfit run --gpu l4 accelerate launch examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForSequenceClassification


def main() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = BertForSequenceClassification(BertConfig())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    data = torch.utils.data.TensorDataset(torch.randint(30000, (512, 128)), torch.randint(2, (512,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for _ in range(3):
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=tokens, labels=labels).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
