"""Steps of the language model of 3.4e9 parameters as one of two ranks, in the ways that students of a course wrote.

    dryfit run --world 2 lm_ranks_step.py --optimizer sharded --until backward

The ways: `reduce` sums each gradient over the ranks as soon as it is there (one all-reduce for each parameter). `fsdp`
keeps half of every matrix, gathers the whole before it is used and the next one ahead of its use, in the order in which
the first step called them.

The optimizers: `fused`, and `one-by-one` without foreach, are torch's AdamW. `sharded` has states of every other
parameter and then sends new values in pieces of 25 MiB, all under way at once.

`--until` says where the program ends: when the model is wrapped, in the last step before the optimizer's, or after it.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed
from one_rank import join_world
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "truth" / "programs"))
from lm_step import course_cross_entropy
from xl_lm import VOCABULARY, Embedding, LanguageModel, Linear

Work = torch.distributed.Work
PIECE_BYTES = 25 * 2**20


class Reduced:
    """All gradients whole, each summed as soon as it is there."""

    def __init__(self, model: nn.Module) -> None:
        self.under_way: list[tuple[nn.Parameter, Work]] = []
        for parameter in model.parameters():
            torch.distributed.broadcast(parameter.data, src=0)
            parameter.register_post_accumulate_grad_hook(self.reduce)
        self.model = model

    def reduce(self, parameter: Tensor) -> None:
        self.under_way.append((parameter, torch.distributed.all_reduce(parameter.grad.data, async_op=True)))

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    def finish(self) -> None:
        ranks = torch.distributed.get_world_size()
        for parameter, work in self.under_way:
            work.wait()
            parameter.grad.data.div_(ranks)
        self.under_way.clear()


class Matrix:
    """The weight of one layer: this rank's share of it, and room for the whole, which is given back between uses."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer, self.parameter = layer, layer.weight
        whole, ranks = self.parameter.data, torch.distributed.get_world_size()
        torch.distributed.broadcast(whole, src=0)
        self.shape, length = whole.shape, whole.numel() // ranks
        first = torch.distributed.get_rank() * length
        self.share = whole.flatten()[first : first + length].clone()
        self.room = torch.empty(whole.numel(), device=whole.device)
        self.room.untyped_storage().resize_(0)
        self.parameter.data = self.share
        self.is_whole = False
        self.gathering: tuple[Work, list[Tensor]] | None = None

    def start(self) -> None:
        if not self.is_whole and self.gathering is None:
            self.gathering = self.gather(async_op=True)

    def finish(self) -> None:
        if self.is_whole:
            return
        if self.gathering is not None:
            work, _ = self.gathering
            self.gathering = None
            work.wait()
        else:
            self.gather(async_op=False)
        self.is_whole = True
        self.parameter.data = self.room.view(self.shape)

    def gather(self, *, async_op: bool) -> tuple[Work, list[Tensor]]:
        self.room.untyped_storage().resize_(self.room.numel() * self.room.element_size())
        parts = list(self.room.chunk(torch.distributed.get_world_size()))
        return torch.distributed.all_gather(parts, self.share, async_op=async_op), parts

    def give_back(self) -> None:
        """The room of a whole that is in use; one that is still being gathered stays."""
        if self.is_whole:
            self.parameter.data = self.share
            self.is_whole = False
            self.room.untyped_storage().resize_(0)

    def scatter_gradient(self) -> None:
        ranks, gradient = torch.distributed.get_world_size(), self.parameter.grad.data.flatten()
        own = torch.empty_like(self.share)
        torch.distributed.reduce_scatter(own, list(gradient.chunk(ranks)))
        own.div_(ranks)
        self.give_back()
        self.parameter.grad = own


class Sharded:
    """Matrices in shares; the norms are whole on every rank. Nothing is gathered ahead in the first forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.order = [Matrix(each) for each in model.modules() if isinstance(each, Linear | Embedding)]
        self.called: list[Matrix] = []
        self.knows_order = False
        for matrix in self.order:
            self.watch(matrix)
        in_shares = {matrix.parameter for matrix in self.order}
        self.whole = [parameter for parameter in model.parameters() if parameter not in in_shares]

    def watch(self, matrix: Matrix) -> None:
        matrix.layer.register_forward_pre_hook(lambda *_: self.before_forward(matrix))
        matrix.layer.register_forward_hook(lambda *_: matrix.give_back())
        matrix.layer.register_full_backward_pre_hook(lambda *_: self.before_backward(matrix))
        matrix.parameter.register_post_accumulate_grad_hook(lambda _: matrix.scatter_gradient())

    def before_forward(self, matrix: Matrix) -> None:
        self.called.append(matrix)
        matrix.finish()
        following = self.order.index(matrix) + 1
        if self.knows_order and following < len(self.order):
            self.order[following].start()

    def before_backward(self, matrix: Matrix) -> None:
        matrix.finish()
        preceding = self.order.index(matrix) - 1
        if preceding >= 0:
            self.order[preceding].start()

    def __call__(self, tokens: Tensor) -> Tensor:
        knew = self.knows_order
        if knew:
            self.order[0].start()
        self.called = []
        logits = self.model(tokens)
        self.order, self.knows_order = self.called, True
        if knew:
            self.order[-1].start()
        return logits

    def finish(self) -> None:
        for parameter in self.whole:
            torch.distributed.all_reduce(parameter.grad.data)
            parameter.grad.data.div_(torch.distributed.get_world_size())


class ShardedAdamW(torch.optim.Optimizer):
    """States of every other parameter; what is new is sent in pieces, all at once."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.all = list(parameters)
        super().__init__(self.all, {})
        ranks, self.rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        self.own = torch.optim.AdamW(self.all[self.rank :: ranks], lr=1e-4)
        self.pieces = [(rank, piece) for rank in range(ranks) for piece in pieces_of(self.all[rank::ranks])]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.own.step()
        sent = []
        for rank, piece in self.pieces:
            flat = torch.cat([parameter.data.reshape(-1) for parameter in piece])
            sent.append((rank, piece, flat, torch.distributed.broadcast(flat, src=rank, async_op=True)))
        for rank, piece, flat, work in sent:
            work.wait()
            if rank != self.rank:
                for parameter, values in zip(piece, flat.split([each.numel() for each in piece]), strict=True):
                    parameter.data.copy_(values.view(parameter.shape))


def pieces_of(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    pieces: list[list[nn.Parameter]] = [[]]
    for parameter in parameters:
        if sum(each.numel() * each.element_size() for each in pieces[-1]) >= PIECE_BYTES:
            pieces.append([])
        pieces[-1].append(parameter)
    return pieces


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True),
    "one-by-one": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, foreach=False),
    "sharded": ShardedAdamW,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["reduce", "fsdp"], default="reduce")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="fused")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 autocast around forward and loss")
    parser.add_argument("--drop-logits", action="store_true", help="the program does not hold them after the loss")
    parser.add_argument("--until", choices=["wrapped", "backward", "step"], default="step")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    join_world()
    net = LanguageModel(longest=512)
    ranked = Reduced(net) if arguments.way == "reduce" else Sharded(net)
    if arguments.until == "wrapped":
        return
    optimizer = OPTIMIZERS[arguments.optimizer](net.parameters())
    rank = torch.distributed.get_rank()
    batch = torch.randint(VOCABULARY, (4, 513), device="cuda")[2 * rank : 2 * rank + 2]
    tokens, targets = batch[:, :-1], batch[:, 1:]

    def step(until: str) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if arguments.autocast else nullcontext():
            logits = ranked(tokens)
            loss = course_cross_entropy(logits, targets)
        if arguments.drop_logits:
            del logits
        loss.backward()
        ranked.finish()
        torch.cuda.synchronize()
        if until == "step":
            optimizer.step()
            torch.cuda.synchronize()

    for _ in range(arguments.steps - 1):
        step("step")
    step(arguments.until)


if __name__ == "__main__":
    main()
