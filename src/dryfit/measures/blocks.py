"""The repeated blocks of a model, found by its structure: what activation checkpointing and others are applied to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_Kind = tuple[type, ...]
_Kinds = dict[_Kind, list["torch.nn.Module"]]

# A kind with less of the model's weights than this is not worth a line of a person's code.
_LEAST_SHARE = 0.1
# Smaller blocks are taken where they leave less than this part of what larger ones leave.
_CLEARLY_LESS = 0.85
# What wraps a module, and would be a block of its own in every model that is wrapped.
_WRAPPERS = ("torch.distributed.", "torch.nn.parallel.", "torch._dynamo.")


def repeated_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The repeated blocks of a model, in its order: all modules of the chosen kinds, none inside another.

    >>> from torch import nn
    >>> layers = [nn.TransformerEncoderLayer(8, 2) for _ in range(3)]
    >>> repeated_blocks(nn.ModuleDict({"embed": nn.Embedding(9, 8), "layers": nn.ModuleList(layers)})) == layers
    True

    Kinds are classes with two instances or more. If only the inputs of blocks are kept for the backward pass, and each
    block is recomputed when its turn comes, then what is kept is about one input for each block and for each weight
    outside of blocks, and, for a time, one for each weight of the largest block. The kinds that make this least are
    chosen, larger ones before smaller ones. Empty where nothing is repeated.
    """
    weights = _weights(model)
    kinds = {kind: found for kind, found in _kinds(model).items() if _may_be_blocks(found, weights)}
    largest = {kind: max(weights[module] for module in found) for kind, found in kinds.items()}
    covered = {kind: sum(weights[module] for module in found) for kind, found in kinds.items()}
    kinds = {kind: found for kind, found in kinds.items() if covered[kind] >= _LEAST_SHARE * weights[model]}

    def kept(tried: list[_Kind]) -> int:
        return (
            weights[model]
            + sum(len(kinds[kind]) - covered[kind] for kind in tried)
            + max((largest[kind] for kind in tried), default=0)
        )

    chosen: list[_Kind] = []
    for limit in sorted({largest[kind] for kind in kinds}, reverse=True):
        small = [kind for kind in kinds if largest[kind] <= limit]
        by_cover = _apart(sorted(small, key=lambda kind: (-covered[kind], -largest[kind])), kinds)
        by_size = _apart(sorted(small, key=lambda kind: (-largest[kind], -covered[kind])), kinds)
        tried = min(by_cover, by_size, key=lambda each: (kept(each), len(each)))
        if kept(tried) < kept(chosen) * (_CLEARLY_LESS if chosen else 1):
            chosen = tried
    blocks = {id(module) for kind in chosen for module in kinds[kind]}
    return [module for module in model.modules() if id(module) in blocks]


def repeated_layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The layers of the kinds that a model has several of, in its order: of a model that has no repeated blocks.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8))
    >>> repeated_layers(model) == [model[0], model[2]]
    True

    Layers are modules without others in them that have a matrix; those within nn.MultiheadAttention are not called.
    """
    import torch

    not_called = {
        id(inner)
        for module in model.modules()
        if isinstance(module, torch.nn.MultiheadAttention)
        for inner in module.modules()
    }
    layers = [module for module in model.modules() if id(module) not in not_called and _is_layer_with_matrix(module)]
    counts = Counter(map(_class_of, layers))
    return [layer for layer in layers if counts[_class_of(layer)] > 1]


def _is_layer_with_matrix(module: torch.nn.Module) -> bool:
    has_children = any(True for _ in module.children())
    return not has_children and any(each.dim() > 1 for each in module.parameters())


def block_kinds(model: torch.nn.Module) -> dict[str, int]:
    """How many repeated blocks there are of each class, by its name: {"GPT2Block": 12}."""
    return kinds_of(repeated_blocks(model))


def kinds_of(blocks: Iterable[torch.nn.Module]) -> dict[str, int]:
    """How many there are of each class, by the name that the program gave it."""
    return dict(Counter(_class_of(block).__name__ for block in blocks))


def blocks_in_words(kinds: Mapping[str, int]) -> str:
    """As a person says it.

    >>> blocks_in_words({"ResnetBlock2D": 22, "Transformer2DModel": 16})
    '22 ResnetBlock2D and 16 Transformer2DModel'
    """
    words = [f"{count} {name}" for name, count in kinds.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def blocks_in_code(kinds: Mapping[str, int]) -> str:
    """As the second argument of `isinstance`: what stands for `{blocks}` in a snippet.

    >>> blocks_in_code({"GPT2Block": 12}), blocks_in_code({"Encoder": 6, "Decoder": 6}), blocks_in_code({})
    ('GPT2Block', '(Encoder, Decoder)', 'Block')
    """
    names = list(kinds) or ["Block"]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _weights(model: torch.nn.Module) -> dict[torch.nn.Module, int]:
    """Of each module, how many weights are in it: matrices and kernels; 1 for a layer that has only vectors."""
    own = {}
    for module in model.modules():
        parameters = list(module.parameters(recurse=False))
        own[module] = max(len(parameters) > 0, sum(each.dim() > 1 for each in parameters))
    return {module: sum(own[each] for each in module.modules()) for module in own}


def _kinds(model: torch.nn.Module) -> _Kinds:
    found: _Kinds = {}
    for module in model.modules():
        if module is not model:
            found.setdefault(_kind(module), []).append(module)
    return found


def _class_of(module: torch.nn.Module) -> Any:
    """Its class as the program has it: FSDP2 gives each module that it shards a class made of its own and that one."""
    kind = type(module)
    is_made = kind.__name__.startswith("FSDP") and kind.__module__.startswith("torch.distributed.")
    return kind.__bases__[-1] if is_made else kind


def _kind(module: torch.nn.Module) -> _Kind:
    """Its class; a Sequential is of the kind of those that hold the same layers."""
    import torch

    kind = _class_of(module)
    return (kind, *(_class_of(child) for child in module.children())) if kind is torch.nn.Sequential else (kind,)


def _may_be_blocks(modules: list[torch.nn.Module], weights: dict[torch.nn.Module, int]) -> bool:
    first = modules[0]
    return (
        len(modules) > 1
        and min(weights[module] for module in modules) > 1
        and not _is_layer_or_holder(first)
        and not _one_holds_other(modules, modules)
    )


def _is_layer_or_holder(module: torch.nn.Module) -> bool:
    """Whether it is a layer of torch's, or only holds or wraps what is called."""
    from torch import nn

    kind = _class_of(module)
    if kind is nn.Sequential:
        return any(True for child in module.children() for _ in child.children())
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)) and kind.forward is nn.Module.forward:
        return True
    is_layer = kind.__module__.startswith("torch.nn.modules.") and not any(True for _ in module.children())
    return is_layer or kind is nn.MultiheadAttention or kind.__module__.startswith(_WRAPPERS)


def _apart(ranked: list[_Kind], kinds: _Kinds) -> list[_Kind]:
    """The kinds of which none has a module inside a module of another; those that rank first count first."""
    taken: list[_Kind] = []
    for kind in ranked:
        if not any(_one_holds_other(kinds[kind], kinds[other]) for other in taken):
            taken.append(kind)
    return taken


def _one_holds_other(some: list[torch.nn.Module], others: list[torch.nn.Module]) -> bool:
    def hold(outer: list[torch.nn.Module], inner: list[torch.nn.Module]) -> bool:
        wanted = {id(module) for module in inner}
        return any(id(held) in wanted for module in outer for held in module.modules() if held is not module)

    return hold(some, others) or hold(others, some)
