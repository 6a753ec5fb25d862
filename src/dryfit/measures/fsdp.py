"""FSDP: parameters, gradients and optimizer states are spread over N cards, block by block; the option is N.

The rehearsal plays the first of N ranks, alone: the virtual card answers for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer
from dryfit.measures.moved import before_model_is_moved
from dryfit.measures.owners import owners, unwrapped
from dryfit.measures.sharding import can_be_sharded, shard, units_of, why_not_sharded
from dryfit.virtual_card.settings import VARIABLE

if TYPE_CHECKING:
    import torch

_CARDS = ("2", "4", "8")


def _why_not(facts: Facts) -> str:
    if not facts.has_optimizer:
        return "the program makes no optimizer, so nothing is trained"
    if facts.world > 1 or any(model.is_distributed for model in facts.models):
        return "the program is spread over several cards already"
    return why_not_sharded(facts, facts.models)


def _variables(environment: Mapping[str, str], _: str) -> dict[str, str]:
    # Of two settings of one name the last counts. The rank itself is no variable: the program would act on it.
    return {VARIABLE: f"{environment.get(VARIABLE, '')};alone=1"}


def _switch_on(moments: Moments, option: str) -> None:
    sharded: list[torch.nn.Module] = []

    def before_card(model: torch.nn.Module) -> bool:
        if not can_be_sharded(model):
            return False
        _shard(model, int(option))
        sharded.append(model)
        return True

    def before_optimizer(wanted: WantedOptimizer) -> None:
        models = owners(wanted.parameters)
        for model in sharded:
            if model not in models:
                raise CannotSwitchOn(
                    f"{type(model).__name__} has been sharded as it was moved to the card, and the optimizer trains "
                    "another model; shard the one that is trained by hand."
                )
        for model in models:
            if model not in sharded and units_of(model):
                _shard_on_card(unwrapped(model), int(option), wanted)
                sharded.append(model)
        if sharded:
            moments.acts()

    before_model_is_moved(moments, before_card)
    moments.when_optimizer_is_wanted(before_optimizer)


def _shard(model: torch.nn.Module, cards: int) -> None:
    """As a person does: each block, and the model around them."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        torch.cuda.set_device(0)
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]  # nobody else is there to be met
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=cards)
    elif torch.distributed.get_world_size() != cards:
        raise CannotSwitchOn(
            f"the program is one of {torch.distributed.get_world_size()} ranks that it has started itself, and not of "
            f"{cards}; leave out this measure."
        )
    shard(model)


def _shard_on_card(model: torch.nn.Module, cards: int, wanted: WantedOptimizer) -> None:
    """Shard a model that is on the card, and have its optimizer train the shards.

    The parameters that the program still knows are emptied, as only their shards are left where a person has written
    it.
    """
    import torch

    names: dict[int, str] = {}
    twins: dict[int, torch.nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        names[id(parameter)] = name
        twins[id(parameter)] = torch.nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
    for module in model.modules():
        for name, held in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            setattr(module, name, twins[id(held)])
            held.data = held.data.new_empty(0)
    twins.clear()
    _shard(model, cards)
    shards = dict(model.named_parameters())

    def shard_of(member: Any) -> Any:
        if isinstance(member, tuple):
            return member[0], shard_of(member[1])
        return shards[names[id(member)]] if id(member) in names else member

    for place, group in enumerate(wanted.groups):
        if not isinstance(group, dict):
            wanted.groups[place] = shard_of(group)
        elif isinstance(group["params"], list):
            group["params"] = [shard_of(member) for member in group["params"]]
        else:
            group["params"] = shard_of(group["params"])


MEASURES = (
    Measure(
        name="fsdp",
        title="FSDP2 over several cards",
        what="Parameters, gradients and optimizer states are spread over several cards; each block is gathered while "
        "it computes. Each card takes the program's batch, so that the effective batch is as many times larger.",
        group="cards",
        why_not=_why_not,
        changes=changes_nothing,
        options=lambda _: _CARDS,
        variables=_variables,
        switch_on=_switch_on,
        without=frozenset({"lora", "qlora", "freeze-blocks"}),
        not_counted="what goes between the cards: each block's parameters twice in a step, and all gradients once",
        snippets={
            "pytorch": """
# torchrun --nproc-per-node {option} train.py
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
for module in list(model.modules()):  # a model that is still on the host
    if isinstance(module, {units}):
        fully_shard(module)
fully_shard(model)  # from torch.distributed.fsdp; instead of model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), ...)
""",
        },
    ),
)
