"""Found by every Python process of a rehearsal, because its folder is first on PYTHONPATH; starts the hooks.

A `sitecustomize` that the environment has of its own is hidden by this one, so it is run here afterwards.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
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

_own = PathFinder.find_spec(__name__, sys.path)
if _own is not None and _own.loader is not None:
    sys.modules[__name__] = module_from_spec(_own)
    _own.loader.exec_module(sys.modules[__name__])

if "DRYFIT_FORK_SERVER" in os.environ:
    from dryfit.rehearse.inside import fork_server

    fork_server.serve()  # returns in forks, which go on as the process of the program that they were started as
