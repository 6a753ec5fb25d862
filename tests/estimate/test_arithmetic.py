"""The sums: the figures people know, what is held together, and that no torch is needed for them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.cards import find_card
from dryfit.errors import UnknownCard, UsageError
from dryfit.estimate import OPTIMIZERS, Estimate, Model, Tensor, estimate
from dryfit.units import GIB


def term(found: Estimate, name: str) -> int | None:
    return next(term.size_bytes for term in found.terms if term.name == name)


def model(*shapes: tuple[int, ...], itemsize: int = 4, trained: bool = True) -> Model:
    parameters = tuple(
        Tensor(name=f"w{n}", shape=shape, itemsize=itemsize, role="linear", trained=trained, autocasts=True)
        for n, shape in enumerate(shapes)
    )
    return Model(given="net", found="made here", parameters=parameters)


@pytest.mark.parametrize(
    ("what", "in_32_bits", "in_8_bits"), [("125e6", 1.40, 0.70), ("1e9", 11.18, 5.59), ("7e9", 78.23, 39.12)]
)
def test_the_rule_of_thumb(what: str, in_32_bits: float, in_8_bits: float) -> None:
    for optimizer, figure, each in (
        ("adamw", in_32_bits, 12),
        ("adamw-32bit", in_32_bits, 12),
        ("adamw-8bit", in_8_bits, 6),
    ):
        rule = estimate(what, dtype="bf16", optimizer=optimizer).rule
        assert rule is not None
        assert round(rule.total_bytes / GIB, 2) == figure
        assert rule.bytes_per_parameter == each
    in_full = estimate(what, dtype="bf16", optimizer="adamw-32bit")
    assert round(in_full.at_least_bytes / GIB, 2) == in_32_bits, "bitsandbytes' 32-bit AdamW is what the rule counts"


def test_the_difference_between_the_rule_and_pytorch_is_explained() -> None:
    rule = estimate("7B", dtype="bf16").rule
    assert rule is not None
    assert rule.sentence == (
        "it takes both states to be float32, but PyTorch's own Adam makes them in the parameters' dtype: 4 bytes a "
        "parameter here; and it leaves out the step's temporaries"
    )
    assert estimate("7B", optimizer="sgd").rule is None
    assert estimate(model((4, 4), trained=True), lora_rank=1).rule is None


def test_bytes_a_parameter_of_a_count() -> None:
    for options, each in (
        ({"optimizer": "sgd"}, 4 + 4),
        ({"optimizer": "momentum"}, 4 + 4 + 4),
        ({"optimizer": "adamw"}, 4 + 4 + 8 + 4),
        ({"optimizer": "adamw", "dtype": "bf16"}, 2 + 2 + 4 + 2),
        ({"optimizer": "adamw", "dtype": "bf16", "implementation": "fused"}, 2 + 2 + 4),
        ({"optimizer": "adamw-fused", "dtype": "bf16", "master_weights": True}, 2 + 2 + 4 + 8 + 4),
        ({"optimizer": "adagrad"}, 4 + 4 + 4 + 8),
        ({"optimizer": "rmsprop"}, 4 + 4 + 4 + 4),
        ({"optimizer": "paged-adamw-32bit", "dtype": "bf16"}, 2 + 2),
    ):
        assert estimate("1000000", **options).at_least_bytes == each * 1_000_000, options


def test_what_depends_on_shapes_is_not_made_up_of_a_count() -> None:
    adafactor = estimate("1B", optimizer="adafactor")
    assert term(adafactor, "optimizer state row_var") is None
    assert term(estimate("1B", optimizer="adamw", implementation="for-loop"), "step's temporaries") is None
    assert term(estimate("1B", optimizer="muon"), "step's temporaries") is None
    assert term(estimate("1B", amp=True), "autocast weight copies") is None


def test_shapes_are_rounded_to_blocks() -> None:
    found = estimate(model((3,), (200, 1)), optimizer="sgd")
    assert term(found, "parameters") == 512 + 1024


def test_forward_can_be_the_highest_moment() -> None:
    found = estimate(model((1000, 1000)), lora_rank=1, amp=True)
    assert found.highest_at == "forward"
    assert found.at_least_bytes == found.forward_bytes > found.step_bytes
    assert estimate(model((1000, 1000)), amp=True).highest_at == "optimizer step"


def test_a_model_in_16_bits_has_its_adapters_in_float32() -> None:
    found = estimate(model((100, 300)), dtype="bf16", lora_rank=8, optimizer="sgd")
    assert term(found, "parameters (frozen)") == 60_416
    assert term(found, "LoRA adapters") == 4 * (8 * 300) + 128 + 4 * (8 * 100) + 384
    assert found.trained_count == 8 * 400


def test_frozen_parameters_have_no_gradient() -> None:
    both = Model(
        given="net", found="", parameters=(*model((256, 2)).parameters, *model((128,), trained=False).parameters)
    )
    found = estimate(both)
    assert (term(found, "parameters"), term(found, "gradients")) == (2048 + 512, 2048)
    assert found.notes == ("128 parameters are frozen: they have no gradients and no optimizer state.",)


def test_a_card_never_fits() -> None:
    small, large = estimate("7B", gpu="rtx-4090"), estimate("7B", gpu="unlimited")
    assert small.card is not None
    assert large.card is not None
    assert (small.card.too_small, small.exit_code) == (True, 1)
    assert (large.card.too_small, large.exit_code) == (False, 0)


def test_the_largest_count_of_a_card_is_exact() -> None:
    card = estimate("1B", dtype="bf16", optimizer="adamw-fused", gpu="a100-80gb").card
    assert card is not None
    assert card.largest_parameter_count == find_card("a100-80gb").usable_bytes // 8
    for count, too_small in ((card.largest_parameter_count, False), (card.largest_parameter_count + 1, True)):
        again = estimate(str(count), dtype="bf16", optimizer="adamw-fused", gpu="a100-80gb").card
        assert again is not None
        assert again.too_small is too_small


@given(
    shapes=st.lists(st.lists(st.integers(1, 40), max_size=3).map(tuple), min_size=1, max_size=8),
    name=st.sampled_from(sorted(OPTIMIZERS)),
    dtype=st.sampled_from(["bf16", "fp16", "fp32"]),
)
def test_sums_hold_for_any_model(shapes: list[tuple[int, ...]], name: str, dtype: str) -> None:
    for implementation in OPTIMIZERS[name].implementations:
        found = estimate(model(*shapes), dtype=dtype, optimizer=name, implementation=implementation)
        by_held = {
            held: sum(t.size_bytes or 0 for t in found.terms if t.held == held)
            for t in found.terms
            for held in [t.held]
        }
        assert found.between_steps_bytes == by_held["always"]
        assert found.step_bytes == sum(by_held[held] for held in ("always", "backward to zero_grad", "during the step"))
        assert found.at_least_bytes == max(found.step_bytes, found.forward_bytes)
        assert all(
            t.size_bytes is not None and t.size_bytes % 512 == 0 for t in found.terms if t.held != "outside PyTorch"
        )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"optimizer": "adamv"},
            "dryfit has no arithmetic for an optimizer called 'adamv'. The nearest names are adam and",
        ),
        (
            {"optimizer": "rmsprop", "implementation": "fused"},
            "has no fused implementation, only foreach and for-loop.",
        ),
        ({"dtype": "int8"}, "'int8' is no dtype that parameters are trained in. Choose bf16, fp16, fp32."),
        ({"dtype": "bflaot16"}, "The nearest names are bf16, bfloat16 and float16. Choose bf16, fp16, fp32."),
        ({"amp": True, "dtype": "bf16"}, "--amp keeps the parameters in float32"),
        ({"master_weights": True}, "say which: --dtype bf16 or --dtype fp16."),
        ({"lora_rank": 8}, "--lora-rank needs the shapes of the layers, and 7B is a count alone."),
        ({"lora_rank": 8, "master_weights": True, "dtype": "bf16"}, "exclude each other"),
        ({"lora_targets": "mlp"}, "--lora-targets mlp is not known; choose all-linear or attention."),
    ],
)
def test_wrong_options_are_sentences(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        estimate("7B", **options)  # type: ignore[arg-type]
    assert sentence in str(raised.value)


def test_wrong_ranks_and_targets_of_a_model_are_sentences() -> None:
    with pytest.raises(UsageError, match="--lora-rank 0 is no rank; give a whole number from 1"):
        estimate(model((4, 4)), lora_rank=0)
    with pytest.raises(
        UsageError, match="net has no linear layer of attention that --lora-targets attention could adapt"
    ):
        estimate(model((4, 4)), lora_rank=1, lora_targets="attention")
    with pytest.raises(UsageError, match="No parameter of net is trained: all are frozen"):
        estimate(model((4, 4), trained=False))
    with pytest.raises(UnknownCard, match="dryfit knows no card called 'h1000'"):
        estimate("7B", gpu="h1000")


@pytest.mark.parametrize(
    ("what", "count"),
    [("125e6", 125_000_000), ("1b", 10**9), ("7B", 7 * 10**9), ("350M", 350_000_000), ("1.3b", 1_300_000_000),
     ("124_439_808", 124_439_808), ("124,439,808", 124_439_808), ("0.5 B", 500_000_000), ("2t", 2 * 10**12)],
)  # fmt: skip
def test_counts(what: str, count: int) -> None:
    assert estimate(what).parameter_count == count


@pytest.mark.parametrize("what", ["7Q", "1.5", "0", "1e400", "9e15", "7BB", "1..2"])
def test_no_counts(what: str) -> None:
    with pytest.raises(
        UsageError, match=r"is not a (count|whole number) of parameters.*; write a number such as 125e6"
    ):
        estimate(what)


def test_a_count_and_a_config_need_no_torch() -> None:
    code = "import sys; from dryfit.estimate import estimate; estimate('7B', gpu='l4'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "rich", "transformers"} & set(done.stdout.split())
