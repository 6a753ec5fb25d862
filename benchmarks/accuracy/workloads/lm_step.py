"""Steps of the language model of 3.4e9 parameters of `tests/truth/programs/xl_lm.py`: forward, or whole training steps.

    python lm_step.py --context 512 --optimizer course --checkpoint 2

`--optimizer course` is the AdamW that students of a course are given: one parameter at a time, its new states are new
tensors, as is every value between. `--loss course` writes the cross-entropy out, in seven tensors as big as the logits.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "truth" / "programs"))
from xl_lm import VOCABULARY, LanguageModel

Parameters = Iterable[nn.Parameter]


class CourseAdamW(torch.optim.Optimizer):
    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, {"lr": 1e-3, "beta_1": 0.9, "beta_2": 0.999, "eps": 1e-8, "decay": 0.01})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta_1, beta_2 = group["beta_1"], group["beta_2"]
            for parameter in group["params"]:
                gradient = parameter.grad.data
                state = self.state[parameter]
                step = state.get("step", 1)
                first = state.get("first", torch.zeros_like(gradient))
                second = state.get("second", torch.zeros_like(gradient))
                new_first = beta_1 * first + (1 - beta_1) * gradient
                new_second = beta_2 * second + (1 - beta_2) * torch.square(gradient)
                rate = group["lr"] * math.sqrt(1 - beta_2**step) / (1 - beta_1**step)
                parameter.data -= rate * new_first / (torch.sqrt(new_second) + group["eps"])
                parameter.data -= group["lr"] * group["decay"] * parameter.data
                state["first"], state["second"], state["step"] = new_first, new_second, step + 1


OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "course": CourseAdamW,
    "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


def course_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    shifted = logits - torch.max(logits, dim=-1, keepdim=True)[0]
    logarithms = shifted - torch.log(torch.sum(torch.exp(shifted), dim=-1, keepdim=True))
    return torch.mean(torch.gather(-logarithms, -1, targets.unsqueeze(-1)))


def flat_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def logits_of(model: LanguageModel, tokens: Tensor, blocks_at_a_time: int) -> Tensor:
    """With `blocks_at_a_time`, so many blocks are computed again in backward, and only what goes into them is kept."""
    if not blocks_at_a_time:
        return model(tokens)
    x = model.embedding(tokens)
    for start in range(0, len(model.blocks), blocks_at_a_time):
        run = nn.Sequential(*model.blocks[start : start + blocks_at_a_time])
        x = checkpoint(run, x, use_reentrant=False)
    return model.head(model.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--autocast", action="store_true", help="bfloat16 autocast around forward and loss")
    parser.add_argument("--forward-only", action="store_true", help="with gradients on, and no step")
    parser.add_argument("--no-grad", action="store_true", help="forward only, without gradients")
    parser.add_argument("--checkpoint", type=int, default=0, metavar="BLOCKS")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="course")
    parser.add_argument("--loss", choices=["course", "torch"], default="course")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    model = LanguageModel(arguments.context)
    optimizer = OPTIMIZERS[arguments.optimizer](model.parameters())
    tokens = torch.randint(VOCABULARY, (arguments.batch, arguments.context), device="cuda")
    targets = torch.randint(VOCABULARY, (arguments.batch, arguments.context), device="cuda")
    cross_entropy = course_cross_entropy if arguments.loss == "course" else flat_cross_entropy

    def autocast() -> torch.autocast | nullcontext[None]:
        return torch.autocast("cuda", dtype=torch.bfloat16) if arguments.autocast else nullcontext()

    def forward() -> None:
        with torch.no_grad() if arguments.no_grad else nullcontext(), autocast():
            logits_of(model, tokens, arguments.checkpoint)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            logits = logits_of(model, tokens, arguments.checkpoint)
            loss = cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()

    for _ in range(arguments.steps):
        if arguments.forward_only or arguments.no_grad:
            forward()
        else:
            step()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
