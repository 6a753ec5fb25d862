"""The cuDNN that the installed torch loads, whether it can be asked without a card, and where its answers are kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dryfit.virtual_card.cudnn.description import description_of
from dryfit.virtual_card.paths import cache_folder

if TYPE_CHECKING:
    from dryfit.virtual_card.settings import CardSettings
    from dryfit.virtual_card.torch_build import TorchBuild

_LIBRARY = "libcudnn_graph.so.9"
_OLDEST = 90800  # cudnn_graph.h: device properties are there since cuDNN 9.8.0
_FORMAT = 1  # of questions and answers; raise it when either changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Whom to ask about plans: `answers` is the file of what was answered before, None where nobody can be asked.

    `doubt` is what there is to say of the answers: why there are none, or whose figures described the card.
    """

    library: Path | None = None
    description: str = ""
    answers: Path | None = None
    doubt: str = ""


def oracle_for(settings: CardSettings, build: TorchBuild) -> Oracle:
    """Whom to ask about plans for this card with this torch; only looks at files.

    >>> from dryfit.virtual_card import CardSettings, installed_torch
    >>> card = CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30)
    >>> oracle_for(card, installed_torch()).library  # doctest: +SKIP
    PosixPath('.../nvidia/cudnn/lib/libcudnn_graph.so.9')
    """
    version = settings.cudnn or build.cudnn
    library = next((folder / _LIBRARY for folder in _folders(build) if (folder / _LIBRARY).is_file()), None)
    if library is None:
        return Oracle(doubt=f"No {_LIBRARY} was found beside torch ({build.folder}), so cuDNN could not be asked.")
    if version is not None and version < _OLDEST:
        return Oracle(
            doubt=f"cuDNN {version_in_words(version)} cannot be asked for plans without a card; 9.8 and later can."
        )
    described = description_of(settings)
    card = hashlib.sha256(described.text.encode()).hexdigest()[:16]
    # Without a known version, as with conda, the library's size and date stand for it.
    of_library = str(version) if version else f"{library.stat().st_size}-{library.stat().st_mtime_ns}"
    answers = cache_folder() / "cudnn" / f"{of_library}-{card}.{_FORMAT}.txt"
    return Oracle(library=library, description=described.text, answers=answers, doubt=described.doubt)


def version_in_words(version: int) -> str:
    """As cuDNN writes its version.

    >>> version_in_words(91002), version_in_words(8902)
    ('9.10.2', '8.9.2')
    """
    major = 10000 if version >= 90000 else 1000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _folders(build: TorchBuild) -> list[Path]:
    """Where cuDNN lies: its wheel's folder, torch's own, an environment's."""
    site = build.folder.parent
    return [site / "nvidia" / "cudnn" / "lib", build.folder / "lib", *(parent / "lib" for parent in site.parents[:3])]
