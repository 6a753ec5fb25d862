"""What a census finds, and what it leaves out."""

from __future__ import annotations

import pytest
import torch

from dryfit.watching.census import take_census


def test_a_view_that_autograd_says_nothing_of_is_left_out() -> None:
    """FSDP's first version keeps such views of its parameters; to ask one for its graph raises."""
    base = torch.ones(4, requires_grad=True).clone()
    with torch.no_grad():
        view = base[:2]
    base.mul_(2)
    with pytest.raises(RuntimeError, match="modified inplace"):
        _ = view.is_leaf
    found = {id(each) for each in take_census().tensors}
    assert id(view) not in found
    assert id(base) in found
