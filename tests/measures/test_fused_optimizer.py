"""fused-optimizer: equal to `fused=True`, and to nothing where it cannot be."""

from __future__ import annotations

from dryfit.measures.facts import Facts, OptimizerFacts
from dryfit.measures.fused_optimizer import MEASURES

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["fused-optimizer"], "fused_by_hand")
    assert switched.phase_peaks["optimizer step"] < plain.phase_peaks["optimizer step"]


def test_applies_to_optimizers_of_torch_that_can_be_fused() -> None:
    adam = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)
    other = OptimizerFacts(kind="torch.optim.adagrad.Adagrad", parameters=8, tensors=1)
    fused = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1, fused=True)
    assert MEASURE.why_not(Facts(optimizers=(adam, other))) == ""
    assert MEASURE.why_not(Facts(optimizers=(other,))) == (
        "no optimizer of the program is one of torch.optim's Adam, AdamW, SGD, which can be fused"
    )
    assert MEASURE.why_not(Facts(optimizers=(fused,))) == "the program's optimizer is fused already"
