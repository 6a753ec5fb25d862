"""`dryfit cards`: the list and one card, in text and JSON, on stdout alone."""

from __future__ import annotations

import json
import sys

import pytest

from dryfit.cards import all_cards, card_from_dict, find_card
from dryfit.cli import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["cards", *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert lines[0].split() == ["key", "name", "sm", "SMs", "total", "outside", "usable"]
    assert [line.split()[0] for line in lines[1 : len(all_cards()) + 1]] == [card.key for card in all_cards()]
    rtx_4090 = next(line for line in lines if line.startswith("rtx-4090 "))
    assert rtx_4090.split("  ")[0] == "rtx-4090"
    assert " ".join(rtx_4090.split()[1:]) == "NVIDIA GeForce RTX 4090 8.9 128 23.52 GiB 460.80 MiB 23.07 GiB"
    rtx_4080 = next(line for line in lines if line.startswith("rtx-4080 "))
    assert " GiB ? " in rtx_4080, "its total was derived"
    assert "? no source was read for the total; `dryfit cards KEY` says how it was derived" in lines[-1]
    assert len({line.index("GiB") for line in lines if line.startswith(("rtx-40", "a100"))}) == 1, "columns are aligned"


def test_one_card_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "GeForce", "RTX", "4090")
    assert out.startswith("NVIDIA GeForce RTX 4090 (rtx-4090)\n")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "total 23.52 GiB 2 sources" in rows
    assert "outside PyTorch 460.80 MiB a formula; leave 100.00 MiB free besides to be sure" in rows
    assert "measured 473.00 MiB median of 7 measurements" in rows
    assert "unverified" not in out
    for places in find_card("4090").sources.values():
        assert all(f"    {place}\n" in out for place in places)


def test_what_is_unverified_is_said_beside_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [" ".join(line.split()) for line in printed(capsys, "titan-rtx").splitlines()]
    assert "multiprocessors 72 unverified: remembered from the data sheet" in rows
    assert "L2 cache 6.00 MiB unverified: remembered from the data sheet" in rows
    assert "total 23.59 GiB unverified: 24576 MiB (PyTorch on Windows) less 424 MiB" in rows


def test_every_card_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for card in all_cards():
        out = printed(capsys, card.key)
        assert out.startswith(f"{card.name} ({card.key})\n")
        assert out.count("unverified: ") == len(card.unverified)


def test_an_ambiguous_name_says_what_else_it_could_be(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "h100")
    assert out.startswith("NVIDIA H100 80GB HBM3 (h100-sxm)\nThe name also fits h100-pcie, h100-nvl.\n")


def test_a_card_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [" ".join(line.split()) for line in printed(capsys, "sm=90,sms=132,memory=141GB").splitlines()]
    assert "total 131.32 GiB given by hand" in rows
    assert "L2 cache 50.00 MiB unverified: as h100-sxm" in rows


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(printed(capsys, "--json"))
    assert values["schema"] == "dryfit.cards/1"
    assert tuple(card_from_dict(card) for card in values["cards"]) == all_cards()


def test_one_card_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    values = json.loads(printed(capsys, "a100", "--json"))
    assert values["schema"] == "dryfit.cards/1"
    assert card_from_dict(values["card"]) == find_card("a100-40gb")
    assert values["card"]["usable_bytes"] == find_card("a100-40gb").usable_bytes
    assert values["namesakes"] == ["a100-40gb-pcie", "a100-80gb", "a100-80gb-pcie"]


def test_an_unknown_card_ends_with_a_sentence_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cards", "rtx", "4900"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "dryfit knows no card called 'rtx 4900'. The nearest names are rtx-4090," in err


@pytest.mark.parametrize("no_color", [False, True])
def test_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = printed(capsys)
    assert "─" in out
    assert all(card.key in out for card in all_cards())
    assert max(len(line) for line in out.split("\n\n")[0].splitlines() if "\x1b" not in line) <= 100
    assert "\x1b[3" not in out, "no colours, bold at most"
