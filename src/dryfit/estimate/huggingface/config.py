"""From a config.json to a model: which family it is, which class of it, and who knows the shapes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dryfit.errors import UsageError
from dryfit.estimate.huggingface import decoders, encoders
from dryfit.estimate.huggingface.layers import Shapes, WrongConfig
from dryfit.estimate.model import Model

_MOST_BYTES = 16 << 20

_FAMILIES = {**decoders.FAMILIES, **encoders.FAMILIES}


def config_file(what: str) -> Path | None:
    """The config.json that is meant, or None where the words are no path that leads to one.

    Raises:
        UsageError: it is the path of a folder without one, or of nothing.
    """
    path = Path(what).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if (path / "config.json").is_file():
            return path / "config.json"
        if "/" in what or what in (".", ".."):
            raise UsageError(
                f"The folder {what} has no config.json. Name a folder that `save_pretrained` wrote, or the file itself."
            )
        return None
    if "/" in what or what.endswith(".json"):
        raise UsageError(
            f"There is no file or folder {what} here, and dryfit fetches nothing from a hub. Download the model's "
            "config.json and give its path, or give a count of parameters such as 7B."
        )
    return None


def model_of_config(path: Path, given: str) -> Model:
    """The model that a config.json describes, on no device.

    Raises:
        UsageError: the file is no config of a model, a value in it is missing or wrong, or the architecture is none
            that dryfit knows and it cannot be built either.
    """
    config = _read(path)
    family, kind = config.get("model_type"), _class_name(config)
    if not isinstance(family, str):
        raise UsageError(
            f'{path} has no "model_type", so it is no config of a Hugging Face model. Give the config.json that lies '
            "beside a model's weights."
        )
    try:
        shapes = _FAMILIES[family](config, kind) if family in _FAMILIES else None
    except WrongConfig as error:
        raise UsageError(f"{path}: {error}") from error
    if shapes is None:
        from dryfit.estimate.build import build_from_config

        return build_from_config(path, given, kind)
    return Model(
        given=given,
        found=f"{shapes.kind}, by arithmetic on {path}",
        parameters=tuple(shapes.tensors),
        config_dtype=_dtype(config),
        notes=_notes(config, shapes, kind),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large to be a config.json. Give the config.json beside a model's weights.")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} could not be read as JSON: {error}. Give a Hugging Face config.json, or a folder that has one."
        ) from error
    if not isinstance(config, dict):
        raise UsageError(f"{path} holds {type(config).__name__}, and a config.json of a model holds an object.")
    return config


def _class_name(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _notes(config: Mapping[str, Any], shapes: Shapes, kind: str | None) -> tuple[str, ...]:
    notes = []
    if kind is None:
        notes.append(f'The config names no class ("architectures"); {shapes.kind} is taken.')
    if config.get("quantization_config"):
        notes.append("The config says that its weights are quantized; they are counted here as if they were not.")
    return tuple(notes)


def _dtype(config: Mapping[str, Any]) -> str | None:
    dtype = config.get("dtype", config.get("torch_dtype"))
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(dtype) if isinstance(dtype, str) else None
