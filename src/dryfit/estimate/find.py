"""From what was written to a model: a count, a config.json, `module:factory`, or a name of torchvision or timm."""

from __future__ import annotations

import re

from dryfit.errors import UsageError
from dryfit.estimate.counts import looks_like_count, model_of_count
from dryfit.estimate.huggingface import config_file, model_of_config
from dryfit.estimate.model import Model

_FACTORY = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def find_model(what: str) -> Model:
    """Give the model that is meant.

    >>> find_model("350M").parameter_count
    350000000

    Raises:
        UsageError: nothing of that name can be found or built.
    """
    if not what.strip():
        raise UsageError("No model is named; write a count of parameters such as 7B, a config.json, or a model's name.")
    if looks_like_count(what) and not what.startswith("./"):
        return model_of_count(what)
    path = config_file(what)
    if path is not None:
        return model_of_config(path, what)
    from dryfit.estimate.build import build_by_name, build_from_factory

    if _FACTORY.fullmatch(what):
        return build_from_factory(what)
    if ":" in what:
        raise UsageError(
            f"{what!r} is not of the form module:factory, such as torchvision.models:resnet50 or train:build_model: "
            "both are names that Python can import."
        )
    return build_by_name(what)
