"""`evaluation_loop` with `torch.no_grad()`, written by hand."""

import evaluation_loop
import torch


def main():
    evaluation_loop.main(evaluate=torch.no_grad()(evaluation_loop.evaluate))
