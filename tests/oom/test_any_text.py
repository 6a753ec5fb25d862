"""Any text: reading raises nothing, and each message that comes out has a verdict."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.findings import Finding
from dryfit.oom import OomMessage, read_messages, says_out_of_memory, settings_in, verdict

from .texts import NEGATIVE, PART_C
from .wild import WILD

REAL = [text.text for text in (*PART_C, *WILD, *NEGATIVE)]
PIECES = [
    "\n",
    "\r\n",
    "\r",
    " ",
    "  ",
    "\x1b[31m",
    "[rank0]: ",
    "0 bytes",
    "17179869184.00 GiB",
    "GiB",
    "(",
    ")",
    ".",
    "1e9",
    "-",
    "\\n",
    "٣",
    "\ud800",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Real texts cut, joined, and broken by pieces of others."""
    parts = []
    for text in draw(st.lists(st.sampled_from(REAL), min_size=1, max_size=4)):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, len(text)))
        parts += [text[start:end] if draw(st.booleans()) else text[:end], draw(st.sampled_from(PIECES))]
    whole = "".join(parts)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(whole)))
        whole = whole[:at] + draw(st.sampled_from(PIECES)) + whole[at + draw(st.integers(0, 6)) :]
    return whole


def _is_sound(message: OomMessage) -> None:
    assert message.count >= 1
    for name, size in message.numbers.items():
        assert 0 <= size < 1 << 60 or message.backend == "host", name
    if message.unused_bytes is not None and message.allocated_bytes is not None:
        assert message.reserved_bytes == message.allocated_bytes + message.unused_bytes
    for given_settings in ({}, {"expandable_segments": "True"}):
        finding = verdict(message, settings=given_settings)
        assert isinstance(finding, Finding) and finding.code.startswith("DF50")
        assert finding.claim and finding.advice and "None" not in finding.claim + finding.advice


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_arbitrary_text(text: str) -> None:
    for message in read_messages(text):
        _is_sound(message)
    says_out_of_memory(text)
    settings_in(text)


@given(mutated())
@settings(max_examples=600, deadline=None)
def test_mutated_texts(text: str) -> None:
    for message in read_messages(text):
        _is_sound(message)
    says_out_of_memory(text)
    settings_in(text)


@given(st.sampled_from(REAL), st.integers(0, 1200))
@settings(max_examples=300, deadline=None)
def test_texts_cut_anywhere_have_no_number_that_the_whole_has_not(text: str, end: int) -> None:
    whole = {size for message in read_messages(text) for size in message.numbers.values()}
    for message in read_messages(text[:end]):
        # A size cut within its digits has no unit, and is none.
        derived = {message.reserved_bytes, message.unused_bytes}
        assert set(message.numbers.values()) - derived <= whole


@given(st.binary())
def test_bytes_read_as_text(data: bytes) -> None:
    read_messages(data.decode("latin-1"))
    read_messages(data.decode("utf-8", errors="surrogateescape"))
