"""`dryfit.explain`: whatever a person has of a memory problem, explained."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.explaining.explanation import Explanation
from dryfit.explaining.recorded import explain_recording
from dryfit.explaining.told import GIVEN, LOG, TEXT, explain_text, reads_as_text
from dryfit.recording.model import Recording
from dryfit.recording.opening import open_recording


def explain(
    source: str | Path | Recording,
    *,
    retrace: bool = True,
    gpu: str | None = None,
    settings: str | Iterable[str] | None = None,
) -> Explanation:
    """Explain an out-of-memory error, or who holds a card's memory, and name one next step.

        dryfit.explain("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...").next_step
        dryfit.explain("snapshot.pickle", gpu="rtx-4090").findings
        dryfit.explain("run.dryfit", settings="max_split_size_mb:256").cards[0].would_have

    `source` is the text of an error, or a file: a log with such text, a snapshot of `torch.cuda.memory` (also
    compressed, or the page of PyTorch's viewer), or a recording of dryfit. The content decides, not the name. What was
    recorded is played through PyTorch's own allocator under other `settings` (each as `PYTORCH_CUDA_ALLOC_CONF` has
    them; by default those worth trying), unless `retrace` is false: seconds, in a process of its own, on no real card.
    `gpu` names the card that a recording was made on, or is to fit on.

    Raises:
        UsageError: there is no such file, it is none of these, nothing in the text is about memory, there is no such
            card or setting, or one is given with a text.
    """
    card = find_card(gpu) if gpu is not None else None
    if isinstance(source, Recording):
        return explain_recording(source, "the recording", retrace=retrace, card=card, settings=settings)
    path = _file(source)
    text = str(source) if path is None else reads_as_text(path)
    if path is not None and text is None:
        return explain_recording(open_recording(path), str(path), retrace=retrace, card=card, settings=settings)
    refuse_for_text(gpu=gpu, settings=settings)
    if path is None:
        return explain_text(str(source), GIVEN, kind=TEXT)
    return explain_text(text or "", str(path), kind=LOG)


def refuse_for_text(*, gpu: str | None, settings: object) -> None:
    """Refuse what can be asked of a recording only.

    Raises:
        UsageError: a card or settings were named.
    """
    for given, name in ((gpu, "gpu"), (settings, "settings")):
        if given is not None:
            raise UsageError(
                f"A text has no requests to play on another card or under other settings; leave {name} out, or give "
                "a snapshot or a recording."
            )


def _file(source: str | Path) -> Path | None:
    """The file that is meant; None where the source is text itself.

    Raises:
        UsageError: it could only be a path, and there is no such file.
    """
    if isinstance(source, Path):
        return source
    if os.path.exists(source):  # noqa: PTH110  what no path can be is none
        return Path(source)
    from dryfit.oom import read_messages

    if "\n" in source or " " in source.strip() or read_messages(source):
        return None
    raise UsageError(
        f"There is no file {source or 'of an empty name'}; give a log, a snapshot, a recording, or the text of the "
        "error itself."
    )
