"""`--skip-weights`: `from_pretrained` builds the model from its config and reads no weights.

A rehearsal needs the sizes of the weights, not their values, so a program with 140 GB of weights can be rehearsed
without the files. The parameters are made where `from_pretrained` would have put them: on the card with
`device_map`, else in this machine's memory, whose pages are never touched and so cost nothing.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

from dryfit.rehearse.inside.imports import after_import

# Arguments of transformers' from_pretrained that the config's own from_pretrained takes too: where its file is.
_ABOUT_THE_CONFIG_FILE = (
    "cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token", "trust_remote_code",
)  # fmt: skip
# ... and those that only say how weights are read; what is left over belongs to the config or the model.
_ABOUT_THE_WEIGHTS = (
    "_commit_hash", "_fast_init", "_from_auto", "_from_pipeline", "adapter_kwargs", "adapter_name", "disable_mmap",
    "from_flax", "from_tf", "generation_config", "gguf_file", "ignore_mismatched_sizes", "key_mapping",
    "low_cpu_mem_usage", "max_memory", "mirror", "offload_buffers", "offload_folder", "offload_state_dict",
    "output_loading_info", "resume_download", "state_dict", "tqdm_class", "use_safetensors", "variant", "weights_only",
)  # fmt: skip


def prepare() -> None:
    """Change `from_pretrained` of transformers' and diffusers' models once the program imports them."""
    after_import("transformers.modeling_utils", _change_transformers)
    after_import("diffusers.models.modeling_utils", _change_diffusers)


def _change_transformers(module: ModuleType) -> None:
    pretrained: Any = module.PreTrainedModel
    real = pretrained.from_pretrained.__func__

    @functools.wraps(real)
    def from_pretrained(cls: Any, name: Any, *model_args: Any, config: Any = None, **kwargs: Any) -> Any:
        asked = {**kwargs, "config": config}
        device = _device(kwargs.pop("device_map", None))
        dtype = kwargs.pop("torch_dtype", None)
        dtype = kwargs.pop("dtype", dtype)
        about_file = {key: kwargs.pop(key) for key in _ABOUT_THE_CONFIG_FILE if key in kwargs}
        about_weights = {key: kwargs.pop(key) for key in _ABOUT_THE_WEIGHTS if key in kwargs}
        if not hasattr(config, "to_dict"):  # None, a name or a path
            config, kwargs = cls.config_class.from_pretrained(
                config if config is not None else name, return_unused_kwargs=True, **about_file, **kwargs
            )
        if asked.get("quantization_config") or getattr(config, "quantization_config", None) or name is None:
            # Quantised while the weights are loaded; only the real path knows how.
            return real(cls, name, *model_args, **asked)
        dtype = _dtype(dtype, config, transformers=module)
        with _on(device), _uninitialised(module):
            model = cls._from_config(config, **({"torch_dtype": dtype} if _is_old(cls) else {"dtype": dtype}), **kwargs)
        model.eval()
        if about_weights.get("output_loading_info"):
            return model, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []}
        return model

    pretrained.from_pretrained = classmethod(cast(Any, from_pretrained))


def _change_diffusers(module: ModuleType) -> None:
    mixin: Any = module.ModelMixin
    real = mixin.from_pretrained.__func__

    @functools.wraps(real)
    def from_pretrained(cls: Any, name: Any, **kwargs: Any) -> Any:
        about_file = {key: kwargs[key] for key in _ABOUT_THE_CONFIG_FILE if key in kwargs}
        with _on(_device(kwargs.get("device_map"))), _uninitialised(module):
            model = cls.from_config(cls.load_config(name, **about_file))
        dtype = kwargs.get("torch_dtype")
        return (model.to(dtype) if dtype is not None else model).eval()

    mixin.from_pretrained = classmethod(cast(Any, from_pretrained))


def _device(device_map: Any) -> Any:
    """The one device a device_map comes to here: "auto", a name, a number or {"": any of these}; None for none."""
    if isinstance(device_map, dict):
        device_map = device_map.get("", next(iter(device_map.values()), None))
    if isinstance(device_map, str) and device_map in ("auto", "balanced", "balanced_low_0", "sequential"):
        return "cuda"
    return f"cuda:{device_map}" if isinstance(device_map, int) else device_map


def _dtype(dtype: Any, config: Any, *, transformers: ModuleType) -> Any:
    """The dtype the real from_pretrained would choose: what is asked for, the config's, or the default."""
    import torch

    if isinstance(dtype, dict):
        dtype = dtype.get("", None)
    # Since transformers 5 the config's dtype is the default; before, it was float32 unless "auto" was asked for.
    of_config = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    if dtype == "auto" or (dtype is None and hasattr(transformers, "PreTrainedConfig")):
        dtype = of_config
    return getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.get_default_dtype()


def _is_old(cls: Any) -> bool:
    """Whether `_from_config` still takes `torch_dtype` (transformers before 4.56)."""
    return '"dtype"' not in inspect.getsource(cls._from_config.__func__)


@contextlib.contextmanager
def _on(device: Any) -> Iterator[None]:
    import torch

    with torch.device(device) if device is not None else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _uninitialised(module: ModuleType) -> Iterator[None]:
    """Skip every initialisation of weights, torch's and the library's: it would touch all of their memory."""
    import torch

    names = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    kept = {name: getattr(torch.nn.init, name) for name in names}
    own = getattr(module, "no_init_weights", None)
    if own is None:
        with contextlib.suppress(ImportError):
            from transformers.initialization import no_init_weights as own
    try:
        for name in names:
            setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)
        with own() if own is not None else contextlib.nullcontext():
            yield
    finally:
        for name, function in kept.items():
            setattr(torch.nn.init, name, function)
