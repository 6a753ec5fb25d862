"""Who owns the bytes of a recording, when, and from which line."""

from dryfit.analyse.analysis import Analysis, analyse
from dryfit.analyse.footprint import Footprint

__all__ = ["Analysis", "Footprint", "analyse"]
