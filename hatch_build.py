"""Hatchling's hook: compiles the virtual card into the wheel, which becomes one of this platform."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "src/dryfit/virtual_card/lib"


class VirtualCardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs for wheels and for editable installs; a source distribution carries the sources alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        builder = _builder(Path(self.root) / "src/dryfit/virtual_card/build.py")
        try:
            builder.build()
        except builder.BuildError as error:
            raise SystemExit(f"dryfit: {error}") from None
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(f"{LIBRARY}/*")  # git ignores the folder; the wheel must not


def _builder(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dryfit_build", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"dryfit: the compiler's script is missing: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
