"""Modules that are alike in one line of the tree, and those that are not in their own."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.analyse.footprint import ModuleBytes
from dryfit.report.alike import module_rows, same_in_each

from . import footprints


def module(path: str, *children: ModuleBytes, own: int = 0, kind: str = "Block") -> ModuleBytes:
    size = own + sum(child.size_bytes for child in children)
    return ModuleBytes(path=path, kind=kind, size_bytes=size, own_bytes=own, children=children)


def shown(children: Sequence[ModuleBytes], most: int = 20, least_bytes: int = 1) -> list[str]:
    rows = module_rows(module("", *children, kind="Model"), most=most, least_bytes=least_bytes)
    return [f"{'  ' * row.depth}{row.name} {row.size_bytes}" for row in rows]


def test_gpt2() -> None:
    rows = module_rows(footprints.gpt2().modules, most=9, least_bytes=100 << 20)
    assert [("  " * row.depth + row.name, row.kind, row.count) for row in rows] == [
        ("head", "Linear", 1),
        ("blocks.0 .. blocks.11 (12 alike)", "Block", 12),
        ("  up", "Linear", 1),
        ("  qkv", "Linear", 1),
        ("  norm_1", "LayerNorm", 1),
        ("tokens", "Embedding", 1),
    ]


def test_siblings_of_about_one_size_are_one_line() -> None:
    assert shown([module(f"layers.{n}", own=100 + n) for n in range(4)]) == ["layers.0 .. layers.3 (4 alike) 406"]


def test_two_are_not_enough_to_be_one_line() -> None:
    assert shown([module(f"layers.{n}", own=9 - n) for n in range(2)]) == ["layers.0 9", "layers.1 8"]


def test_a_run_breaks_where_sizes_classes_or_numbers_do() -> None:
    sizes = [*[100] * 3, *[50] * 3]
    assert shown([module(f"layers.{n}", own=size) for n, size in enumerate(sizes)]) == [
        "layers.0 .. layers.2 (3 alike) 300",
        "layers.3 .. layers.5 (3 alike) 150",
    ]
    kinds = [module(f"layers.{n}", own=9, kind="A" if n % 2 else "B") for n in range(4)]
    assert len(shown(kinds)) == 4
    gap = [module(f"layers.{n}", own=9) for n in (0, 1, 3, 4)]
    assert len(shown(gap)) == 4


def test_what_is_inside_of_those_alike_is_summed() -> None:
    layers = [module(f"layers.{n}", module(f"layers.{n}.up", own=60), own=5) for n in range(3)]
    assert shown(layers) == ["layers.0 .. layers.2 (3 alike) 195", "  up 180"]


def test_runs_within_runs() -> None:
    def layer(n: int) -> ModuleBytes:
        experts = [module(f"layers.{n}.experts.{e}", own=10) for e in range(4)]
        return module(f"layers.{n}", module(f"layers.{n}.experts", *experts), own=1)

    assert shown([layer(n) for n in range(3)]) == [
        "layers.0 .. layers.2 (3 alike) 123",
        "  experts.0 .. experts.3 (4 alike) 120",
    ]


def test_containers_with_nothing_of_their_own_give_way_to_their_only_line() -> None:
    layers = [module(f"model.layers.{n}", own=7) for n in range(3)]
    nested = module("model", module("model.layers", *layers, kind=""), kind="")
    assert shown([nested]) == ["model.layers.0 .. model.layers.2 (3 alike) 21"]
    only = module("wrapped", module("wrapped.fc", own=3), kind="")
    assert shown([only]) == ["wrapped.fc 3"]


def test_the_heaviest_lines_are_shown_and_parents_before_what_is_inside() -> None:
    modules = [module("a", module("a.x", own=50), module("a.y", own=1), own=2), module("b", own=40)]
    assert shown(modules, most=3) == ["a 53", "  x 50", "b 40"]
    assert shown(modules, least_bytes=41) == ["a 53", "  x 50"]


def test_no_tree_has_no_lines() -> None:
    assert shown([]) == []


def test_numbers_in_names_that_are_no_place_stay() -> None:
    assert same_in_each("exp_avg of h.3.attn.c_attn.weight") == "exp_avg of h.*.attn.c_attn.weight"
    assert same_in_each("conv1.0") == "conv1.*"
