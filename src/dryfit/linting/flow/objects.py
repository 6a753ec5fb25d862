"""Which names of a file hold a model, an optimizer, a schedule, a scaler or a loss function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum

from dryfit.linting.flow.names import full_name, last_part, reference
from dryfit.linting.flow.tree import Syntax


class Kind(Enum):
    """What an object is for a training loop."""

    MODEL = "model"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "scaler"
    LOSS_FUNCTION = "loss function"


_OPTIMIZERS = """
    ASGD Adadelta Adafactor Adagrad Adam AdamW AdamW8bit Adamax LAMB LBFGS Lamb Lion NAdam PagedAdamW8bit RAdam RMSprop
    Rprop SGD SparseAdam
"""
OPTIMIZERS = frozenset(_OPTIMIZERS.split())
_SCHEDULE_MAKER = re.compile(r"get_(\w+_)?(schedule\w*|scheduler)$")
_MODEL_WRAPPERS = {
    "DataParallel",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "convert_sync_batchnorm",
}
_KEEPS_MODEL = {
    "to",
    "cuda",
    "cpu",
    "half",
    "float",
    "bfloat16",
    "eval",
    "train",
    "compile",
    "requires_grad_",
    "from_pretrained",
}
_LOSS_NAME = re.compile(
    r"(^|[._])(criterion\w*|loss_?(fn|func|fct|function|criterion)\w*|\w*criterion)$", re.IGNORECASE
)
_SCALER_NAME = re.compile(r"(^|[._])(\w*_)?(grad_?)?scaler$", re.IGNORECASE)
_SCHEDULER_NAME = re.compile(r"sched", re.IGNORECASE)
_MODULE_BASES = {"torch.nn.Module", "torch.nn.modules.Module", "torch.nn.Sequential"}


def module_classes(syntax: Syntax, imports: dict[str, str]) -> dict[str, ast.ClassDef]:
    """The classes of this file that are `nn.Module`s, as far as this file shows."""
    classes = {node.name: node for node in syntax.each(ast.ClassDef)}

    def is_module(node: ast.ClassDef, seen: frozenset[str]) -> bool:
        for base in node.bases:
            name = full_name(imports, base)
            if name in _MODULE_BASES or last_part(name) in ("Module", "LightningModule", "PreTrainedModel"):
                return True
            inner = classes.get(name)
            if inner is not None and name not in seen and is_module(inner, seen | {name}):
                return True
        return False

    return {name: node for name, node in classes.items() if is_module(node, frozenset([name]))}


def kinds_of(syntax: Syntax, imports: dict[str, str], modules: dict[str, ast.ClassDef]) -> dict[str, Kind]:
    """What each name holds, by what is assigned to it and by the methods that are called on it.

    A name means the same in all functions of a file: `model` is the parameter here and the argument there.
    """
    found: dict[str, Kind] = {}
    called: dict[str, set[str]] = {}
    for node in syntax.each(ast.Call, ast.Assign, ast.AnnAssign):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (name := reference(node.func.value)):
            bare = not node.args and not node.keywords
            called.setdefault(name, set()).add(node.func.attr if bare or node.func.attr != "eval" else "eval(...)")
            if (
                node.func.attr == "step"
                and node.args
                and _SCALER_NAME.search(name)
                and (stepped := reference(node.args[0]))
            ):
                found[stepped] = Kind.OPTIMIZER
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            kind = kind_of_value(node.value, imports, modules)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if kind is not None and (name := reference(target)):
                    found.setdefault(name, kind)
    for name, methods in called.items():
        kind = _by_methods(name, methods, imports)
        if kind is not None:
            found.setdefault(name, kind)
    for name, kind in list(_by_name(syntax, found)):
        found.setdefault(name, kind)
    return found


def _by_methods(name: str, methods: set[str], imports: dict[str, str]) -> Kind | None:
    if name.partition(".")[0] in imports:
        return None
    if "eval" in methods or "parameters" in methods or "named_parameters" in methods:
        return Kind.MODEL
    if "step" in methods and _SCHEDULER_NAME.search(name):
        return Kind.SCHEDULER
    if "step" in methods and ("zero_grad" in methods or "optim" in name.lower()):
        return Kind.OPTIMIZER
    if "scale" in methods and _SCALER_NAME.search(name):
        return Kind.SCALER
    return None


def _by_name(syntax: Syntax, found: dict[str, Kind]) -> Iterator[tuple[str, Kind]]:
    for node in syntax.each(ast.Call):
        name = reference(node.func)
        if name not in found and _LOSS_NAME.search(name):
            yield name, Kind.LOSS_FUNCTION


def kind_of_value(value: ast.AST, imports: dict[str, str], modules: dict[str, ast.ClassDef]) -> Kind | None:
    """What the expression makes, where its name says so."""
    if not isinstance(value, ast.Call):
        return None
    name = full_name(imports, value.func)
    last = last_part(name)
    if not name and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPS_MODEL:
        return kind_of_value(value.func.value, imports, modules)
    if name in modules or last in _MODEL_WRAPPERS or name.startswith(("torchvision.models.", "timm.create_model")):
        return Kind.MODEL
    if last == "from_pretrained" and re.search(r"AutoModel\w*|\w+(Model|For[A-Z]\w+)\.", name):
        return Kind.MODEL
    if ".lr_scheduler." in name or _SCHEDULE_MAKER.search(last):
        return Kind.SCHEDULER
    if last in OPTIMIZERS or (name.startswith("torch.optim.") and last[:1].isupper()):
        return Kind.OPTIMIZER
    if last.endswith("GradScaler"):
        return Kind.SCALER
    if name.startswith("torch.nn.") and last.endswith("Loss") and not name.startswith("torch.nn.functional."):
        return Kind.LOSS_FUNCTION
    if name.startswith("torch.nn.") and last[:1].isupper() and not name.startswith("torch.nn.functional."):
        return None if last in ("Parameter", "ParameterList", "ParameterDict") else Kind.MODEL
    return None
