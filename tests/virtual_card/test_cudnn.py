"""cuDNN's answers: the server that has it loaded, the file of answers, and whom to ask about which card."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dryfit.cards import find_card
from dryfit.virtual_card import CardSettings, TorchBuild, installed_torch
from dryfit.virtual_card.cudnn import Oracle, PlanServer, oracle_for
from dryfit.virtual_card.cudnn.description import description_of
from dryfit.virtual_card.settings import settings_of

from .cudnn_server import DATA, FILTER, FORWARD, Asking, Child, ask, heuristics, oracle

can_be_asked = pytest.mark.skipif(oracle().library is None, reason=oracle().doubt or "cuDNN can be asked")
SMALL = heuristics(FORWARD, (1, 8, 8, 8), (8, 8, 3, 3), (1, 8, 8, 8))


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """An A100, with a file of answers of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return oracle()


@pytest.fixture
def server(answers: Oracle, tmp_path: Path) -> Iterator[PlanServer]:
    with PlanServer(str(tmp_path), answers, Child) as serving:
        yield serving


def lines(answers: Oracle) -> list[str]:
    assert answers.answers is not None
    return answers.answers.read_text().split("\n") if answers.answers.exists() else []


# ---- what cuDNN says ------------------------------------------------------------------------------------------------
@can_be_asked
def test_nothing_is_started_until_somebody_asks(server: PlanServer, answers: Oracle) -> None:
    server.look()
    assert server.starts == 0
    assert not lines(answers)


@can_be_asked
def test_configurations_and_their_plans(server: PlanServer) -> None:
    listed = ask(server, f"H {SMALL}")
    assert listed is not None
    status, _, *configurations = listed.split(" ")
    assert status == "0"
    assert configurations
    for number in range(len(configurations)):
        plan = ask(server, f"P {number} {SMALL}")
        assert plan is not None and len(plan.split(" ")) == 2
    assert ask(server, f"P {len(configurations)} {SMALL}") == "2000 0"  # there is no such configuration
    assert server.starts == 1


@can_be_asked
def test_a_plan_is_written_in_json(server: PlanServer) -> None:
    written = ask(server, f"J 0 {SMALL}")
    assert written is not None
    status, _, text = written.partition(" ")
    assert status == "0"
    plan = json.loads(text)
    assert plan["GPUProfile"]["deviceVer"] == 800
    assert isinstance(plan["engine"]["engineId"], int)


@can_be_asked
def test_an_engine_by_its_number(server: PlanServer) -> None:
    graph = SMALL.removeprefix("4(201:15=").removesuffix(",200:8=03000000)")
    engine = f"2(1300:15={graph},1301:3=1)"
    assert ask(server, f"E {engine}") == "0 1///"
    plan = ask(server, f"X 3(300:15={engine})")
    assert plan is not None and plan.startswith("0 ")


@can_be_asked
@pytest.mark.parametrize("question", ["H ", "H 4(", "H 4(201:15=#3)", "P x", "Z what?", "H 99()", "E 2(1300:3=1)"])
def test_what_cannot_be_read_is_refused_and_does_no_harm(server: PlanServer, question: str) -> None:
    refused = ask(server, question)
    assert refused is not None and not refused.startswith("0")
    listed = ask(server, f"H {SMALL}")
    assert listed is not None and listed.startswith("0 ")


@can_be_asked
@pytest.mark.skipif(installed_torch().cudnn != 92400, reason="of cuDNN 9.24")
def test_workspaces_of_resnet50_as_an_independent_program_found_them(server: PlanServer) -> None:
    """The prototype asked cuDNN 9.24 another way: one call for each call of torch's, and every plan made for real."""
    batch = 32
    first = heuristics(FORWARD, (batch, 3, 224, 224), (64, 3, 7, 7), (batch, 64, 112, 112))
    same = heuristics(FORWARD, (batch, 64, 56, 56), (64, 64, 3, 3), (batch, 64, 56, 56))
    assert ask(server, f"P 0 {first}") == "0 122065680"
    assert ask(server, f"P 0 {same}") == "0 25837584"


@can_be_asked
@pytest.mark.parametrize(("operation", "engine"), [(FORWARD, "58"), (DATA, "63"), (FILTER, "62")])
def test_cudnn_says_which_plans_it_leaves_out_without_a_card(server: PlanServer, operation: str, engine: str) -> None:
    question = heuristics(operation, (32, 64, 56, 56), (64, 64, 1, 1), (32, 64, 56, 56))
    listed = ask(server, f"H {question}")
    assert listed is not None
    assert listed.split(" ")[1].split(".")[0] == engine
    assert engine not in [each.partition("/")[0] for each in listed.split(" ")[2:]]


@can_be_asked
def test_none_is_left_out_before_a_window_of_three(server: PlanServer) -> None:
    question = heuristics(FORWARD, (32, 256, 14, 14), (256, 256, 3, 3), (32, 256, 14, 14))
    listed = ask(server, f"H {question}")
    assert listed is not None and listed.split(" ")[1] == "-"


@can_be_asked
def test_a_process_that_was_killed_is_started_again_for_the_next_who_asks(tmp_path: Path, answers: Oracle) -> None:
    started: list[Child] = []

    def start(*command: object) -> Child:
        started.append(Child(*command))  # type: ignore[arg-type]
        return started[-1]

    with PlanServer(str(tmp_path), answers, start) as server:
        with Asking(server) as asking:
            assert asking.ask(f"H {SMALL}") is not None
            started[-1].end()
            assert asking.ask(f"P 0 {SMALL}") is None  # who is connected is told
        assert ask(server, f"P 0 {SMALL}") is not None
        started[-1].end()
        server.look()
        assert ask(server, f"P 1 {SMALL}") is not None
        started[-1].end()
        server.look()
        with pytest.raises(OSError):  # it is not started for ever
            Asking(server)
    assert len(started) == server.starts == 3
    assert all(child.ended() for child in started)


def test_without_a_cudnn_nobody_can_ask(tmp_path: Path) -> None:
    with PlanServer(str(tmp_path), Oracle(doubt="None."), Child) as server:
        server.look()
        assert server.variables == {}
        assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_long_path(tmp_path: Path, answers: Oracle) -> None:
    folder = tmp_path / ("f" * 120)
    folder.mkdir()
    with PlanServer(str(folder), dataclasses.replace(answers, library=Path("/nowhere")), Child) as server:
        assert (folder / "cudnn").is_socket()
        assert server.variables["DRYFIT_CUDNN_SOCKET"] == f"{folder}/cudnn"


# ---- whom to ask ----------------------------------------------------------------------------------------------------
def build(folder: Path, *, cudnn: int | None = 92400) -> TorchBuild:
    return TorchBuild(version="2.14.1", cuda="13.0", cudnn=cudnn, folder=folder / "torch")


L4 = CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30)


def library_in(folder: Path) -> Path:
    library = folder / "nvidia/cudnn/lib/libcudnn_graph.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    return library


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    found = oracle_for(L4, build(tmp_path))
    assert (found.library, found.answers) == (None, None)
    assert found.doubt == (
        f"No libcudnn_graph.so.9 was found beside torch ({tmp_path}/torch), so cuDNN could not be asked."
    )


def test_a_version_without_the_mode_is_said(tmp_path: Path) -> None:
    library_in(tmp_path)
    found = oracle_for(L4, build(tmp_path, cudnn=90100))
    assert found.library is None
    assert found.doubt == "cuDNN 9.1.0 cannot be asked for plans without a card; 9.8 and later can."


def test_answers_lie_by_version_and_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = library_in(tmp_path)
    found = oracle_for(L4, build(tmp_path))
    assert found.library == library
    assert found.answers is not None
    assert found.answers.parent == tmp_path / "cache/dryfit/cudnn"
    assert found.answers.name.startswith("92400-")
    others = [
        oracle_for(L4, build(tmp_path, cudnn=91002)),
        oracle_for(L4, build(tmp_path, cudnn=None)),
        oracle_for(dataclasses.replace(L4, sms=60), build(tmp_path)),
    ]
    assert len({found.answers, *(other.answers for other in others)}) == 4
    same = oracle_for(dataclasses.replace(L4, outside_bytes=1 << 29, count=8, order="up"), build(tmp_path))
    assert same.answers == found.answers
    assert not found.answers.parent.exists()  # nothing is made until somebody asks


# ---- the card's description -----------------------------------------------------------------------------------------
def test_a_card_is_described_by_the_catalogue() -> None:
    described = description_of(settings_of(find_card("h100-sxm")))
    values = json.loads(described.text)
    assert described.doubt == ""
    assert values["deviceName"] == "NVIDIA H100 80GB HBM3"
    assert (values["deviceVer"], values["multiProcessorCount"], values["maxThreadsPerSM"]) == (900, 132, 2048)
    assert values["maxSharedMemoryPerBlockOptin"] == 227 << 10
    assert (values["smClockRateKHz"], values["memClockRateKHz"]) == (1980000, 2619000)
    assert len(values) == 24


@pytest.mark.parametrize(
    ("card", "lender"),
    [("h200", None), ("a100-40gb", None), ("l4", "NVIDIA GeForce RTX 4090"), ("b200", "NVIDIA H100 80GB HBM3")],
)
def test_clocks_that_another_card_lends_are_said(card: str, lender: str | None) -> None:
    """A card of the same chip lends them without a word."""
    named = find_card(card)
    doubt = description_of(settings_of(named)).doubt
    assert doubt == (
        f"cuDNN was told the clocks of {lender}: those of {named.name} are not known, and seldom decide a plan."
        if lender
        else ""
    )


def test_a_compute_capability_that_nobody_knows() -> None:
    values = json.loads(description_of(CardSettings(name="X", sm=130, sms=10, memory_bytes=1 << 34)).text)
    assert (values["deviceVer"], values["maxThreadsPerSM"]) == (1300, 1536)
