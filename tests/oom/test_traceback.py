"""The line of the program that a traceback names."""

from __future__ import annotations

import pytest

from dryfit.oom import read_messages, verdict
from dryfit.oom.traceback import line_that_failed

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 90.00 MiB is free. Of the allocated memory 78.10 GiB is allocated by PyTorch, and 350.00 MiB is reserved "
    "by PyTorch but unallocated."
)
FRAMES = """\
  File "/home/me/train.py", line 88, in <module>
    main()
    ~~~~^^
  File "/home/me/train.py", line 61, in main
    optimizer.step()
  File "/home/me/env/lib/python3.11/site-packages/torch/optim/adamw.py", line 171, in step
    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                       ^^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize("before", ["", "Traceback (most recent call last):\n", "step 3: loss 0.1\n"])
@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "2024-05-01 12:00:00,123 "])
def test_the_innermost_line_of_the_program_is_the_place(before: str, prefix: str) -> None:
    text = "".join(prefix + line for line in f"{before}{FRAMES}{MESSAGE}\nbye\n".splitlines(keepends=True))
    (message,) = read_messages(text)
    place = verdict(message).place
    assert place is not None
    assert (place.file, place.line, place.function, place.text) == (
        "/home/me/train.py",
        61,
        "main",
        "optimizer.step()",
    )


def test_a_failure_told_again_keeps_its_place() -> None:
    for text in (f"{FRAMES}{MESSAGE}\nERROR {MESSAGE}\n", f"ERROR {MESSAGE}\n{FRAMES}{MESSAGE}\n"):
        (message,) = read_messages(text)
        assert message.count == 2
        assert message.place is not None and message.place.line == 61


@pytest.mark.parametrize(
    "text",
    [
        f"{FRAMES}ValueError: no\nepoch 3\n{MESSAGE}",  # another error's
        f"{MESSAGE}\n{FRAMES}",
        f'  File "/usr/lib/python3.11/site-packages/torch/cuda/__init__.py", line 9, in f\n    g()\n{MESSAGE}',
        f'  File "C:\\env\\Lib\\site-packages\\torch\\cuda\\__init__.py", line 9, in f\n    g()\n{MESSAGE}',
        MESSAGE,
    ],
)
def test_what_is_no_line_of_the_program_is_not_named(text: str) -> None:
    (message,) = read_messages(text)
    assert message.place is None


def test_a_frame_without_its_source_is_a_place() -> None:
    text = f'  File "train.py", line 3\n{MESSAGE}'
    place = line_that_failed(text, text.index("torch."))
    assert place is not None
    assert (place.file, place.line, place.function, place.text) == ("train.py", 3, "", "")
