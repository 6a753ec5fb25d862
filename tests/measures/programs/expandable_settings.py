"""`language_model`, whose allocator's settings the program itself changes after it has imported torch."""

import language_model
import torch


def main():
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    language_model.main()
