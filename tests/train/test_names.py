"""The names of `dryfit.train`: each is there whatever was imported before, and none loads torch before it is used."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import dryfit.train

# Without those that load transformers and Lightning, which take seconds.
_SUBMODULES_FIRST = """
import importlib, inspect, pkgutil
import dryfit.train

for module in pkgutil.iter_modules(dryfit.train.__path__):
    if not module.name.endswith("_callback"):
        importlib.import_module(f"dryfit.train.{module.name}")
for name in dryfit.train.__all__:
    if not name.endswith("MemoryCallback"):
        found = {}
        exec(f"from dryfit.train import {name}", found)
        print(name, type(found[name]).__name__ if inspect.ismodule(found[name]) else "usable")
"""


def test_no_submodule_hides_a_name_of_the_package() -> None:
    done = subprocess.run([sys.executable, "-c", _SUBMODULES_FIRST], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert {"accumulate", "checkpoint_blocks", "evaluation", "two_pass"} <= found.keys()
    assert {name for name, kind in found.items() if kind != "usable"} == set()
    assert {module.name for module in pkgutil.iter_modules(dryfit.train.__path__)}.isdisjoint(dryfit.train.__all__)


_LIBRARIES_MISSING = """
import sys
sys.modules.update(transformers=None, lightning=None, pytorch_lightning=None)

import dryfit.train
from dryfit.errors import UsageError

for name in ("LightningMemoryCallback", "TransformersMemoryCallback"):
    try:
        getattr(dryfit.train, name)
    except ImportError as error:
        assert isinstance(error, UsageError)
        print(error)
"""


def test_a_callback_whose_library_is_missing_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", _LIBRARIES_MISSING], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "LightningMemoryCallback is for programs that train with Lightning, which is not installed for this Python. "
        "Install it (pip install lightning), or leave the callback out.",
        "TransformersMemoryCallback is for programs that train with transformers, which is not installed for this "
        "Python. Install it (pip install transformers), or leave the callback out.",
    ]


def test_names_are_listed_without_torch() -> None:
    program = "import sys, dryfit.train; assert 'two_pass' in dir(dryfit.train); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
