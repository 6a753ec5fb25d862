"""The virtual card: a C library in front of CUDA's, by which PyTorch's own CUDA code runs without a card.

`settings` describes a card, `torch_build` reads which torch is installed, `loader` puts the library in front of a child
process or of this one, and `calls` asks it what it counted. Nothing here imports torch.
"""

from dryfit.virtual_card.loader import environment, in_front, library_folder, put_in_front
from dryfit.virtual_card.settings import CardSettings, settings_of
from dryfit.virtual_card.torch_build import TorchBuild, installed_torch

__all__ = [
    "CardSettings",
    "TorchBuild",
    "environment",
    "in_front",
    "installed_torch",
    "library_folder",
    "put_in_front",
    "settings_of",
]
