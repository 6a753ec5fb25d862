"""Models that have to be built: on PyTorch's meta device, with shapes and no memory. The only use of torch."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dryfit.errors import UsageError
from dryfit.estimate.model import Model, Role, Tensor
from dryfit.estimate.words import nearest_of

if TYPE_CHECKING:
    from torch import nn

_ADVICE_FOR = {
    "": "It has to build the model without arguments, and leave it where torch puts it: here that is the meta device, "
    "which has no memory.",
    "transformers": "Install a transformers that knows this model, or give a count of parameters such as 7B.",
}


def build_by_name(name: str) -> Model:
    """Build the model that torchvision, or else timm, has under a name.

    Raises:
        UsageError: neither is installed, neither has it, or it cannot be built.
    """
    installed = [library for library in ("torchvision", "timm") if _is_installed(library)]
    if not installed:
        raise UsageError(
            f"{name!r} is no count of parameters, no file and no module:factory, and neither torchvision nor timm is "
            "installed to know it as a model's name. Install one of them, or give a count such as 7B."
        )
    known: list[str] = []
    for library in installed:
        makers = _torchvision() if library == "torchvision" else _timm()
        if name in makers:
            return _built(name, f"{name} of {library}", makers[name])
        known += makers
    raise UsageError(
        f"No model is called {name!r} in {' or '.join(installed)}. {nearest_of(name, known)}A model can also be a "
        "count of parameters (7B), a Hugging Face config.json, or module:factory, a function that builds it."
    )


def build_from_factory(what: str) -> Model:
    """Build a model by calling `module:factory` without arguments; the module is looked for in the current folder, too.

    Raises:
        UsageError: it cannot be imported, called without arguments, or gives no torch.nn.Module.
    """
    module_name, _, path = what.partition(":")
    _need_torch(f"build {what}")

    def make() -> Any:
        found: Any = _imported(what, module_name)
        for name in path.split("."):
            if not hasattr(found, name):
                raise UsageError(
                    f"{module_name} has no {path}. {nearest_of(name, dir(found))}Name a function of the module that "
                    "builds the model and takes no arguments."
                )
            found = getattr(found, name)
        return found() if callable(found) and not _is_module(found) else found

    return _built(what, f"{what}, called without arguments", make)


def _imported(what: str, name: str) -> Any:
    with _current_folder_first():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module is there, and misses another
            raise UsageError(
                f"There is no module {error.name}, which {what} names, neither in the current folder nor installed. "
                "Name a module that Python can import from here."
            ) from error


def build_from_config(path: Path, given: str, kind: str | None) -> Model:
    """Build what a Hugging Face config describes, with transformers, where dryfit does not know the shapes.

    Raises:
        UsageError: transformers is not installed, does not know it, or cannot build it.
    """
    if not _is_installed("transformers"):
        raise UsageError(
            f"dryfit does not know the shapes of {kind or 'the model'} in {path} by arithmetic, and transformers, "
            "which could build it, is not installed. Install it, or give a count of parameters such as 7B."
        )
    _need_torch(f"build {path}")

    def make() -> Any:
        import transformers

        config = transformers.AutoConfig.from_pretrained(str(path.parent if path.name == "config.json" else path))
        maker = getattr(transformers, kind or "", None)
        if maker is None:
            maker = getattr(transformers.AutoModelForCausalLM, "from_config")  # noqa: B009  it has no types
        return maker(config)

    return _built(given, f"{kind or 'the model'} of {path}", make, by="transformers")


def _built(given: str, found: str, make: Callable[[], Any], by: str = "") -> Model:
    """Call what builds a model, on the meta device, what it prints kept off stdout."""
    _need_torch(f"build {given}")
    import torch

    try:
        with torch.device("meta"), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = make()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"{given} could not be built: {type(error).__name__}: {_first_line(error)}. {_ADVICE_FOR[by]}"
        ) from error
    if not _is_module(module):
        raise UsageError(
            f"{given} gave {type(module).__name__}, and a torch.nn.Module was expected. Name a function that returns "
            "the model."
        )
    how = f"built on the meta device{f' with {by}' if by else ''}"
    parameters = _parameters(given, module)
    if not parameters:
        raise UsageError(f"{given} gave a {type(module).__name__} without parameters; there is nothing to estimate.")
    buffers = tuple(_tensor(name, buffer) for name, buffer in module.named_buffers())
    return Model(given=given, found=f"{found}, {how}", parameters=parameters, buffers=buffers)


def _parameters(given: str, model: nn.Module) -> tuple[Tensor, ...]:
    from torch.nn.parameter import is_lazy

    roles = _roles(model)
    found = []
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise UsageError(
                f"{given} has a lazy layer ({name}), whose shape only a first batch decides. Give a model without "
                "lazy layers, or rehearse the program with `dryfit run`."
            )
        role, attention, autocasts = roles.get(id(parameter), ("other", False, False))
        found.append(_tensor(name, parameter, role=role, attention=attention, autocasts=autocasts))
    return tuple(found)


def _tensor(
    name: str, tensor: Any, *, role: Role = "other", attention: bool = False, autocasts: bool = False
) -> Tensor:
    return Tensor(
        name=name,
        shape=tuple(tensor.shape),
        itemsize=tensor.element_size(),
        role=role,
        attention=attention,
        autocasts=autocasts,
        floating=tensor.is_floating_point(),
        trained=tensor.requires_grad,
    )


def _roles(model: nn.Module) -> dict[int, tuple[Role, bool, bool]]:
    """What each parameter is to its layer, by identity: role, whether in attention, whether autocast casts it."""
    from torch import nn

    autocasting = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.Bilinear, nn.RNNBase)
    roles: dict[int, tuple[Role, bool, bool]] = {}
    for path, layer in model.named_modules():
        in_attention = "attn" in path.lower() or "attention" in path.lower()
        transposed = type(layer).__name__ == "Conv1D" and not isinstance(layer, nn.modules.conv._ConvNd)
        for name, parameter in layer.named_parameters(recurse=False):
            role: Role = "other"
            if name == "weight" and isinstance(layer, nn.Linear):
                role = "linear"
            elif name == "weight" and transposed:
                role = "transposed linear"
            elif name == "weight" and isinstance(layer, nn.Embedding):
                role = "embedding"
            casts = transposed or isinstance(layer, autocasting)
            attention = in_attention and role in ("linear", "transposed linear")
            if id(parameter) in roles:  # shared by two layers, as an embedding and the output layer
                role, attention, cast_before = roles[id(parameter)]
                casts = casts or cast_before
            roles[id(parameter)] = (role, attention, casts)
    head = _output_layer(model)
    if head is not None and roles.get(id(head), ("other",))[0] == "linear":
        roles[id(head)] = ("head", False, True)
    return roles


def _output_layer(model: nn.Module) -> Any:
    """The weight of the output layer of one of transformers' models, which peft does not adapt."""
    from torch.nn import Parameter

    give = getattr(model, "get_output_embeddings", None)
    if not callable(give):
        return None
    with contextlib.suppress(NotImplementedError, AttributeError):
        if (weight := getattr(give(), "weight", None)) is not None:
            return weight
    for name in ("score", "classifier", "qa_outputs"):
        weight = getattr(getattr(model, name, None), "weight", None)
        if isinstance(weight, Parameter):
            return weight
    return None


def _torchvision() -> dict[str, Callable[[], Any]]:
    models = importlib.import_module("torchvision.models")
    return {name: partial(models.get_model, name, weights=None) for name in models.list_models()}


def _timm() -> dict[str, Callable[[], Any]]:
    timm = importlib.import_module("timm")
    names = dict.fromkeys([*timm.list_models(), *timm.list_models(pretrained=True)])
    return {name: partial(timm.create_model, name, pretrained=False) for name in names}


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _need_torch(what: str) -> None:
    if not _is_installed("torch"):
        raise UsageError(f"To {what}, torch has to be installed; a count of parameters such as 7B needs none.")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["(it says nothing)"])[0].rstrip(".")


@contextlib.contextmanager
def _current_folder_first() -> Iterator[None]:
    """As `python -m` has it, so that a module beside the person is found."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(Path.cwd()))
