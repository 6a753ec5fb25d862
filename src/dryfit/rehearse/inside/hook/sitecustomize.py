"""Found by every Python process of a rehearsal, because its folder is first on PYTHONPATH; starts the hooks.

A `sitecustomize` that the environment has of its own is hidden by this one, so it is run here afterwards.
"""

import importlib.util
import sys
from pathlib import Path

_here = str(Path(__file__).parent)
sys.path[:] = [entry for entry in sys.path if entry != _here]

try:
    from dryfit.rehearse.inside import bootstrap
except ImportError:
    sys.stderr.write(
        f"dryfit: {sys.executable} is a Python without dryfit, so what it runs is not measured; "
        "install dryfit there, or start the program with the Python that has it.\n"
    )
else:
    bootstrap.start()

sys.modules.pop(__name__, None)
_own = importlib.util.find_spec(__name__)
if _own is not None and _own.loader is not None:
    _module = importlib.util.module_from_spec(_own)
    sys.modules[__name__] = _module
    _own.loader.exec_module(_module)
