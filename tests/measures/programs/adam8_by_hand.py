"""`language_model` with an 8-bit AdamW, written by hand."""

import bitsandbytes
from language_model import Model, train


def main():
    model = Model().cuda()
    train(model, bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-3))
