"""Add up what training a model takes, at once: parameters, gradients, optimizer state, each term on its own line.

WHAT is a count of parameters (125e6, 350M, 7B), a model of torchvision or timm (resnet50), a Hugging Face config.json
or a folder that has one, or module:factory, a function that builds the model. Nothing is run: what needs a run is named
in words, and `dryfit run` knows it.
"""

from __future__ import annotations

import argparse

NAME = "estimate"
HELP = "add up what training a model takes, without running it: a lower bound, every term shown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="WHAT", help="7B, resnet50, path/to/config.json or module:factory")
    add = parser.add_argument_group("the model").add_argument
    add("--dtype", metavar="bf16|fp16|fp32", help="of parameters and gradients (default: as built, which is fp32)")
    add("--amp", action="store_true", help="parameters stay in float32, and autocast makes 16-bit copies of weights")
    add("--master-weights", action="store_true", help="the optimizer works on a float32 copy of 16-bit parameters")
    add("--lora-rank", metavar="R", type=int, help="freeze the model and train LoRA adapters of this rank")
    add(
        "--lora-targets",
        choices=("all-linear", "attention"),
        default="all-linear",
        help="the layers that have adapters (default: all-linear)",
    )
    add = parser.add_argument_group("the optimizer").add_argument
    add(
        "--optimizer",
        metavar="NAME",
        default="adamw",
        help="adamw (default), sgd, adamw-8bit, ...; any other lists all",
    )
    implementation = parser.add_mutually_exclusive_group()
    for name, what in (
        ("foreach", "all tensors at once: PyTorch's default on a card"),
        ("fused", "one kernel, no temporaries"),
        ("for-loop", "one tensor after the other"),
    ):
        implementation.add_argument(
            f"--{name}", dest="implementation", action="store_const", const=name, help=f"its step: {what}"
        )
    add = parser.add_argument_group("the answer").add_argument
    add("--gpu", metavar="CARD", help="say whether these terms alone are too much for a card of `dryfit cards`")
    add("--json", action="store_true", help="print JSON; sizes are in bytes")


def run(arguments: argparse.Namespace) -> int:
    from dryfit.estimate import estimate

    found = estimate(
        arguments.what,
        dtype=arguments.dtype,
        optimizer=arguments.optimizer,
        implementation=arguments.implementation,
        master_weights=arguments.master_weights,
        amp=arguments.amp,
        lora_rank=arguments.lora_rank,
        lora_targets=arguments.lora_targets,
        gpu=arguments.gpu,
    )
    if arguments.json:
        import json

        print(json.dumps(found.to_dict(), indent=2))
    else:
        from dryfit.report.estimate import print_estimate

        print_estimate(found)
    return found.exit_code
