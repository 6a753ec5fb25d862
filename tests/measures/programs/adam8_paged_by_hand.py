"""`language_model` with a paged 8-bit AdamW, written by hand."""

import bitsandbytes
from language_model import Model, train


def main():
    model = Model().cuda()
    train(model, bitsandbytes.optim.PagedAdamW8bit(model.parameters(), lr=1e-3))
