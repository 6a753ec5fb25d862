"""Runs one of the programs beside it, as `entry` does, and has imported the training stacks: warm ones do that once."""

import importlib
import sys

import accelerate  # noqa: F401
import lightning  # noqa: F401
import peft  # noqa: F401  # and bitsandbytes with it
import torch  # noqa: F401
from transformers import BertForSequenceClassification, GPT2LMHeadModel, LlamaForCausalLM, Trainer  # noqa: F401

if __name__ == "__main__":
    name = sys.argv.pop(1)
    importlib.import_module(name).main(*sys.argv[1:])
