"""Bytes per parameter: by the elements of what was labelled, and the bytes that were allocated."""

from __future__ import annotations

from dryfit.analyse.footprint import Footprint, OwnerBytes
from dryfit.recording import model

from .build import MIB, Script
from .by_label import footprint


def training(
    *, dtype: str = "float32", parameter_bytes: int = 4, gradient_bytes: int = 4, state_bytes: tuple[int, ...] = (4, 4)
) -> Script:
    """Two steps of two layers of 4 M parameters each, whose gradients are gone at the peak, in forward."""
    script = Script()
    script.phase(model.SETUP, step=0)
    count, shape = 4 * MIB, (2048, 2048)
    for layer in "ab":
        script.alloc(count * parameter_bytes, owner=model.PARAMETER, name=f"{layer}.weight", dtype=dtype, shape=shape)
    for step in (1, 2):
        script.phase(model.FORWARD, step=step)
        saved = script.alloc(300 * MIB, owner=model.ACTIVATION)
        script.phase(model.BACKWARD)
        script.free(saved)
        gradients = [script.alloc(count * gradient_bytes, owner=model.GRADIENT) for _ in "ab" if gradient_bytes]
        script.phase(model.OPTIMIZER_STEP)
        if step == 1:
            for size in state_bytes * 2:
                script.alloc(count * size, owner=model.OPTIMIZER_STATE)
        script.phase(model.ZERO_GRAD)
        script.free(*gradients)
    return script


def said(script: Script) -> str:
    recipe = footprint(script.recording()).recipe
    return recipe.sentence if recipe is not None else ""


def test_each_owner_counts_when_it_holds_most() -> None:
    found = footprint(training().recording())
    assert model.GRADIENT not in {owner.owner for owner in found.peak.owners}
    recipe = found.recipe
    assert recipe is not None
    assert (recipe.parameters, recipe.size_bytes) == (8 * MIB, 128 * MIB)
    assert recipe.parts == (
        OwnerBytes(owner=model.PARAMETER, size_bytes=32 * MIB, blocks=2),
        OwnerBytes(owner=model.GRADIENT, size_bytes=32 * MIB, blocks=2),
        OwnerBytes(owner=model.OPTIMIZER_STATE, size_bytes=64 * MIB, blocks=4),
    )
    assert recipe.sentence == (
        "4.00 parameter + 4.00 gradient + 8.00 optimizer state = 16.00 bytes for each of 8.4 M parameters, each part "
        "when it is largest."
    )
    assert Footprint.from_dict(found.to_dict()) == found


def test_it_goes_by_the_bytes_and_no_rule() -> None:
    half = training(dtype="bfloat16", parameter_bytes=2, gradient_bytes=2, state_bytes=(1, 1))
    assert said(half).startswith("2.00 parameter + 2.00 gradient + 2.00 optimizer state = 6.00 bytes for each")
    plain = training(state_bytes=())
    assert said(plain).startswith("4.00 parameter + 4.00 gradient = 8.00 bytes for each of 8.4 M parameters")
    frozen = training(gradient_bytes=0, state_bytes=())
    assert said(frozen) == "4.00 parameter bytes for each of 8.4 M parameters."


def test_master_copies_are_bytes_and_no_further_parameters() -> None:
    script = training(dtype="bfloat16", parameter_bytes=2, gradient_bytes=2)
    script.phase(model.FORWARD, step=3)
    script.alloc(32 * MIB, owner=model.PARAMETER, name="parameter 0", dtype="float32", shape=(8 * MIB,))
    assert said(script).startswith(
        "6.00 parameter + 2.00 gradient + 8.00 optimizer state = 16.00 bytes for each of 8.4 M"
    )
    alone = Script()
    alone.phase(model.SETUP, step=0)
    alone.alloc(32 * MIB, owner=model.PARAMETER, name="parameter 0", dtype="float32", shape=(8 * MIB,))
    assert said(alone) == "4.00 parameter bytes for each of 8.4 M parameters."


def test_weights_in_one_allocation_are_added_and_views_of_it_are_not() -> None:
    script = Script()
    shared = script.alloc(12 * MIB)
    for name in ("weight_ih", "weight_hh"):  # as an LSTM's, with something between them
        script.label(shared, model.PARAMETER, name, "float32", (1024, 1024))
    tied = script.alloc(4 * MIB)
    for name in ("head.weight", "tokens.weight"):
        script.label(tied, model.PARAMETER, name, "float32", (1024, 1024))
        script.label(tied, model.PARAMETER, name, "float32", (1024, 1024))
    recipe = footprint(script.recording()).recipe
    assert recipe is not None
    assert (recipe.parameters, recipe.size_bytes) == (3 * MIB, 16 * MIB)


def test_there_is_none_where_shapes_are_not_known() -> None:
    script = Script()
    assert footprint(script.recording()).recipe is None
    script.alloc(4 * MIB, owner=model.PARAMETER, name="known", dtype="float32", shape=(1024, 1024))
    assert said(script) == "4.00 parameter bytes for each of 1.0 M parameters."
    script.alloc(4 * MIB, owner=model.PARAMETER, name="unknown")
    assert footprint(script.recording()).recipe is None


def test_a_shape_that_is_larger_than_its_allocation_is_none() -> None:
    script = Script()
    script.alloc(4 * MIB, owner=model.PARAMETER, name="sharded", dtype="float32", shape=(4096, 1024))
    assert footprint(script.recording()).recipe is None
