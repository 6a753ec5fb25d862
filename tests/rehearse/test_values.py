"""Values on the virtual card: true where small operators compute them, listed where they were invented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from dryfit.places import Owner, is_of_the_program, owner_of
from dryfit.rehearse.inside.values import known as known_module
from dryfit.rehearse.inside.values.known import KnownStorages
from dryfit.rehearse.inside.values.launches import stored_arguments
from dryfit.virtual_card.loader import environment
from dryfit.virtual_card.settings import CardSettings

PROGRAMS = Path(__file__).parent / "programs"
CARD = CardSettings(name="NVIDIA H100 of any size", sm=90, sms=132, memory_bytes=1 << 40)
FRONT_ENDS = ["kernel overrides", "backend select"]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    """A process on the virtual card that has torch, and forks for each program."""
    variables = os.environ | environment(CARD) | {"HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, str(PROGRAMS / "values_on.py")]
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as started:
        yield started


@pytest.fixture
def run(server: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Run one of the programs on the virtual card and read what it found."""

    def run(program: str, *arguments: str, off: bool = False, front_end: str = "", assume: str = "") -> dict[str, Any]:
        stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
        asked = {
            "words": [str(PROGRAMS / f"values_{program}.py"), *arguments],
            "off": off,
            "assume": assume,
            "environment": {"VALUES_FRONT_END": front_end, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "made")},
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        code = server.stdout.readline()
        assert code == "0\n", stderr.read_text()[-3000:]
        answer: dict[str, Any] = json.loads(stdout.read_text().splitlines()[-1])
        if not off and front_end:
            assert answer["front_end"] == front_end
        return answer

    return run


def line_of(program: str, mark: str) -> int:
    lines = (PROGRAMS / f"values_{program}.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line of {mark}"))


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_small_operators_give_true_values_and_sizes(run: Run, front_end: str) -> None:
    answer = run("operators", front_end=front_end)
    found = answer["found"]
    spread = found.pop("randn_spread")
    card, host = found.pop("types")
    assert card == host
    assert 0.5 < spread < 2
    assert found == {
        "sum": 45,
        "masked": [7, 8, 9],
        "nonzero": [[7], [8], [9]],
        "masked_select": [7, 8, 9],
        "where": [7, 8, 9],
        "assigned": [0, 1, 2, 3, 4, 5, 6, 0, 0, 0],
        "unique": [0, 1, 2, 3, 4, 5, 6],
        "unique_inverse": [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6, 0, 0, 0], [4, 1, 1, 1, 1, 1, 1]],
        "unique_consecutive": [1, 2, 1],
        "bincount": [4, 1, 1, 1, 1, 1, 1],
        "repeat_interleave": [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6],
        "equal": [True, False],
        "histc": [0, 2, 1, 0],
        "mean": 2.0,
        "sort": [1, 2, 0],
        "topk": [0, 2],
        "argmax": 1,
        "masked_scatter": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        "cumsum": [0, 1, 3, 6, 10, 15, 21, 21, 21, 21],
        "isin": [True, True, False, False, False, False, False, True, True, True],
        "isin_number": True,
        "number_first": [1, 2, 4, 8, 16],
        "remainder": [0, 1, 1, 3],
        "shift": [1, 2, 4, 8],
        "multinomial": 1,
        "full": [3.5, 3.5],
        "from_host": [[1, 3], [2, 4]],
        "part_of_known": [0, 5, 5, 0],
        "cast": 1,
        "inference_mode": [0, 2, 4],
        "vmap": [1, 2, 3],
        "device_mode": [0, 2.5, 5],
        "cpu_generator_untouched": True,
        "cuda_offset": found["cuda_offset"],
        "randperm": list(range(8)),
        "cpu_digits": [0.30078125] * 4,
        "sparse_entries": 2,
        "batches": 1,
    }
    assert found["cuda_offset"] > 0  # moved by the draws on the card
    assert answer["inventions"] == []
    assert answer["failures"] == {}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_unknown_values_get_the_stated_answers_and_are_listed(run: Run, front_end: str) -> None:
    answer = run("policies", front_end=front_end)
    found = answer["found"]
    assert "capturing" in found.pop("capturing")
    assert found == {
        "item": 1.0,
        "finite": True,
        "logarithm": 0.0,
        "int": 0,
        "bool": False,
        "list": [1.0, 1.0],
        "kept": 1 << 20,
        "nonzero": [1 << 20, 2],
        "unique": 300,
        "repeated": [0, 1, 2, 3, 4],
        "topk": [[4, 5], [6, 7], [0, 1], [2, 3]],
        "argmax": 4,
        "max_of_columns": [2, 3, 0, 1, 2, 3, 0, 1],
        "drawn": [512, 513],
        "sorted": [0, 1, 2, 3, 4],
        "masked_scatter_gradient": [6],
        "known_before": [0, 0, 0, 0],
        "unknown_after": [1, 1, 1, 1],
        "partly_written": [1, 1, 1, 1],
        "written": [3, 3, 3, 3],
        "sparse_rows": 100,
        "finite_gradient": True,
        "running_mean": [1, 1, 1, 1],
    }
    listed = {(each["what"], each["line"]): each for each in answer["inventions"]}
    item = listed["item of float32", line_of("policies", "item")]
    assert item["answer"] == "1.0"
    assert not item["decides_size"]
    assert item["file"] == str(PROGRAMS / "values_policies.py")
    assert item["function"] == "read"
    assert item["source"].startswith('"item": loss.item(),')
    assert item["count"] == 1
    kept = listed["nonzero", line_of("policies", "kept")]
    assert kept["answer"] == "all 1,048,576 elements are kept, the most there can be"
    assert kept["to_change"] == f"--assume values_policies.py:{line_of('policies', 'kept')}=0.5"
    assert kept["decides_size"]
    assert ("copy of float32[4] to the host", line_of("policies", "unknown_after")) in listed
    assert ("nonzero", line_of("policies", "printed")) not in listed
    assert {"_unique2", "repeat_interleave", "indices of topk", "indices of multinomial"} <= {
        what for what, _ in listed
    }
    assert not any("1048576" in what for what, _ in listed)  # the copy of everything is not a question
    # Those that decide sizes come first.
    decide = [each["decides_size"] for each in answer["inventions"]]
    assert decide == sorted(decide, reverse=True)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_nothing_of_the_size_of_a_large_unknown_tensor_runs_on_the_host(run: Run, front_end: str) -> None:
    answer = run("large", front_end=front_end)
    found = answer["found"]
    assert found.pop("host_growth_bytes") < 64 << 20  # one copy of the tensor has 480 MB
    many = 60_000_000
    assert found == {
        "unique": [many],
        "unique_all": [[many], [many], [many]],
        "unique_int16": [[1 << 16], [many]],
        "unique_bool": [[2], [many], [2]],
        "unique_rows": [[many // 4, 4], [many // 4], [many // 4]],
        "unique_columns": [[many // 4, 4], [4], [4]],
        "unique_consecutive": [[many], [many], [many]],
        "consecutive_rows": [[many // 4, 4], [many // 4]],
        "nonzero": [many, 1],
        "where": [many],
        "masked": [many],
        "repeat_interleave": [many],
        "bincount": [1],
        "histc": [100],
        "sort": [many],
        "topk": [5],
        "expanded": 0,
        "expanded_equal": False,
        "small_inverse": [0, 1, 2, 3],
        "small_counts": [1, 1, 1, 1],
    }
    listed = {each["answer"] for each in answer["inventions"] if each["what"] == "_unique2"}
    assert {
        "all 60,000,000 values are distinct, the most there can be",
        "65,536 of 60,000,000 values are distinct",
        "2 of 60,000,000 values are distinct",
    } <= listed


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_what_the_cpu_refuses_is_counted_and_gets_the_stated_answer(run: Run, front_end: str) -> None:
    answer = run("refused", front_end=front_end)
    assert answer["found"] == {"unique": [[3], [3], [3]]}  # the CPU has no order of complex numbers
    assert answer["failures"] == {"aten::_unique2": 1}
    stated = "all 3 values are distinct, the most there can be"
    assert [each["answer"] for each in answer["inventions"]] == [stated]


def test_known_storages_bear_changes_while_they_look_for_expired_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread, or a finalizer, calls operators in the middle of it."""
    known = KnownStorages()
    kept, late = [torch.zeros(1) for _ in range(8)], [torch.zeros(1) for _ in range(8)]
    refer_to = known_module._refer_to

    class Reference:
        def __init__(self, storage: Any) -> None:
            self.reference = refer_to(storage)

        def expired(self) -> bool:
            if late:
                known.remember(late.pop(), assumed=True)
                known.forget(kept[0])
            return self.reference.expired()

    monkeypatch.setattr(known_module, "_refer_to", Reference)
    for number, tensor in enumerate([*kept, *(torch.zeros(1) for _ in range(8))]):
        known.remember(tensor, assumed=bool(number % 2))
    del tensor
    made_late = late.copy()
    known._purge()
    assert [known.is_true(tensor) for tensor in kept] == [False, False, True, False, True, False, True, False]
    assert all(known.is_assumed(tensor) for tensor in made_late)
    assert len(known.references) == 7 + 8


def test_known_storages_bear_several_threads() -> None:
    known, wrong = KnownStorages(), []

    def churn() -> None:
        for number in range(2000):
            known._purge_at = 8  # each call looks for expired ones
            tensor = torch.zeros(1)
            known.remember(tensor, assumed=bool(number % 2))
            if known.is_true(tensor) is bool(number % 2):
                wrong.append(number)

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(churn) for _ in range(4)]:
            each.result()
    known._purge()
    assert (wrong, known.references, known.assumed) == ([], {}, set())


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/train.py", Owner.PROGRAM),
        ("/home/me/lib/python3/train.py", Owner.PROGRAM),
        ("/home/me/torch/nn/mine.py", Owner.PROGRAM),
        ("/usr/lib/python3.11/json/decoder.py", Owner.MACHINERY),
        ("/opt/python/lib/python3.13t/threading.py", Owner.MACHINERY),
        ("/usr/lib/python3/dist-packages/trl/trainer.py", Owner.LIBRARY),
        ("/venv/lib/python3.11/site-packages/torch_geometric/nn.py", Owner.LIBRARY),
        ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", Owner.MACHINERY),
        (torch.__file__, Owner.MACHINERY),
        (subprocess.__file__, Owner.MACHINERY),
        ("/tmp/torchinductor_me/ab/cab.py", Owner.MACHINERY),
        ("/tmp/dryfit-kernels-1000/inductor/ab/cab.py", Owner.MACHINERY),
        ("<frozen runpy>", Owner.MACHINERY),
        (stored_arguments.__code__.co_filename, Owner.MACHINERY),
    ],
)
def test_whose_line_it_is_is_told_from_the_path(file: str, owner: Owner) -> None:
    assert owner_of(file) is owner
    assert is_of_the_program(file) is (owner is Owner.PROGRAM)


def test_generated_code_is_known_by_where_this_process_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/scratch/kernels")
    assert owner_of("/scratch/kernels/ab/cab.py") is Owner.MACHINERY
    assert owner_of("/scratch/kernels.py") is Owner.PROGRAM


def test_memory_is_the_same_to_the_byte_with_and_without_values(run: Run) -> None:
    without = run("gpt2", "gpt2", off=True)["found"]
    assert run("gpt2", "gpt2")["found"] == without


def test_memory_is_the_same_to_the_byte_where_every_operator_is_small(run: Run) -> None:
    without = run("gpt2", "tiny", off=True)["found"]
    assert run("gpt2", "tiny", front_end="kernel overrides")["found"] == without
    assert run("gpt2", "tiny", front_end="backend select")["found"] == without


def test_a_scaler_keeps_its_scale_and_takes_its_steps(run: Run) -> None:
    answer = run("scaler")
    assert answer["found"] == {"scale": 65536.0, "steps": 4}
    assert answer["inventions"] == []


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_collectives_of_a_world_of_one_keep_what_is_known(run: Run, front_end: str) -> None:
    answer = run("world", front_end=front_end)
    assert answer["found"] == {
        "all_reduce": [0, 1, 2, 3],
        "all_gather": [0, 1, 2, 3],
        "objects": [{"a": 1}, {"b": 2}],
        "loss": 1.0,
    }
    assert [each["what"] for each in answer["inventions"]] == ["item of float32"]


def test_torch_compile_stays_on_and_what_triton_writes_is_unknown(run: Run) -> None:
    answer = run("compile")
    found = answer["found"]
    assert found["frames"]["ok"] >= 1
    assert found["modules_made_by_inductor"] >= 2  # forward and backward
    assert (found["source"], found["target"]) == (1.0, 1.0)  # the first is true, the second the stated answer
    assert [(each["what"], each["line"]) for each in answer["inventions"]] == [
        ("copy of float32[16] to the host", line_of("compile", "target"))
    ]


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("tl.store(y + i, tl.load(x + i))", {"y"}),
        ("y += 4\ntl.store(\n    y + i, x)\ntl.atomic_add(z, 1)", {"y", "z"}),
        ("pointer = y + i\ntl.store(pointer, 0)", {"x", "y", "z"}),
        ("helper(x)", {"x", "y", "z"}),
    ],
)
def test_what_a_triton_kernel_stores_to_is_read_from_its_source(source: str, stored: set[str]) -> None:
    assert stored_arguments(source, ["x", "y", "z"]) == stored


GIB = 1 << 30


@pytest.mark.stacks
def test_a_llama_step_takes_the_branch_a_card_takes(run: Run) -> None:
    """The mask of ones that the batch brings is read, and left out of the attention."""
    without, with_values = run("llama", "small", off=True)["found"], run("llama", "small")["found"]
    assert (without["explicit_mask"], with_values["explicit_mask"]) == (True, False)
    assert without["allocated"] - with_values["allocated"] >= 4 << 20  # the bf16 mask of 2 x 1 x 1024 x 1024
    # To the byte what it takes when the mask is made and not given to the model.
    unmasked = run("llama", "small", "unmasked", off=True)["found"]
    figures = ("allocated", "reserved", "attentions")
    assert [with_values[figure] for figure in figures] == [unmasked[figure] for figure in figures]


@pytest.mark.stacks
def test_llama_8b_needs_what_the_prototype_measured(run: Run) -> None:
    without, with_values = run("llama", "8b", off=True)["found"], run("llama", "8b")["found"]
    assert f"{without['allocated'] / GIB:.2f}" == "77.95"
    assert f"{with_values['allocated'] / GIB:.2f}" == "75.45"


@pytest.mark.stacks
def test_small_batches_are_routed_to_every_expert(run: Run) -> None:
    answer = run("routing")
    rows = {int(size): times for size, times in answer["found"]["rows_of_experts"].items()}
    # 128 tokens, two experts each, eight experts: 32 rows for each expert of both layers, in its products.
    assert set(rows) == {32}
    assert rows[32] % 16 == 0
    assert [(each["what"], each["answer"]) for each in answer["inventions"]] == [
        ("indices of topk", "256 choices spread evenly, 32 for each of 8")
    ]
    assert "modeling_mixtral.py" in answer["inventions"][0]["through"]


@pytest.mark.stacks
def test_generation_ends_at_the_length_asked_for(run: Run) -> None:
    assert run("generate")["found"] == {"greedy": [2, 36], "sampled": [2, 36], "beams": [2, 36]}


@pytest.mark.stacks
def test_detection_runs_and_small_suppression_is_true(run: Run) -> None:
    answer = run("detection")
    assert answer["found"]["nms"] == [1, 2]
    assert answer["found"]["detections"] == [100]  # torchvision's own limit
    assert any(each["what"] == "nonzero" and "torchvision" in each["through"] for each in answer["inventions"])
    assert answer["failures"] == {}


@pytest.mark.stacks
def test_trl_counts_the_tokens_it_trained_on(run: Run) -> None:
    found = run("sft")["found"]
    assert found["steps"] == 3
    assert len(found["tokens"]) == 3
    # Batches of 4 texts of 21 to 60 tokens: true counts, whichever texts were drawn.
    steps = [later - earlier for earlier, later in zip([0, *found["tokens"]], found["tokens"], strict=False)]
    assert all(sum(found["lengths"][:4]) <= step <= sum(found["lengths"][-4:]) for step in steps)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_sizes_are_the_largest_or_even_where_nothing_was_assumed(run: Run, front_end: str) -> None:
    answer = run("sizes", front_end=front_end)
    assert answer["found"] == {
        "kept": 1 << 20, "where": 1 << 20, "masked_select": 1 << 20, "assigned": 100,
        "unique": 1000, "unique_counts": 1000, "repeated": 10,
        "float": 1.0, "int": 0, "bool": False, "list": [0, 0],
        "few": [32] * 8,  # 128 tokens, 2 of 8 experts each
        "many": [128] * 256,  # 4,096 tokens, 8 of 256 experts each
        "uneven": [25] * 8,
        "split": [32] * 8,
        "loop": 4096, "loop_of_a_known_length": 100, "broken_out": 4096,
    }  # fmt: skip
    listed = {(each["what"], each["answer"]): each for each in answer["inventions"]}
    routed = listed["indices of topk", "32,768 choices spread evenly, 128 for each of 256"]
    assert routed["decides_size"]
    assert routed["count"] == 3  # the line is that of all calls of `routed`, and the sizes are those of the largest
    assert listed["indices of topk", "256 choices spread evenly, 32 for each of 8"]["decides_size"]  # of `split`
    assert not any(each["decides_size"] for (what, _), each in listed.items() if what == "indices of argmax")
    ended = [each for each in answer["inventions"] if each["what"] == "the end of a loop"]
    assert [(each["answer"], each["to_change"], each["decides_size"]) for each in ended] == [
        ("True after 4,096 turns", "--assume turns=256", True)
    ] * 2


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_sizes_are_what_the_person_assumes(run: Run, front_end: str) -> None:
    assume = "nonzero=0.5,unique=0.1,routing=worst,item=3,repeats=2.5,turns=7"
    answer = run("sizes", front_end=front_end, assume=assume)
    found = answer["found"]
    half = 1 << 19
    assert [found[name] for name in ("kept", "where", "masked_select")] == [half, half, half]
    assert [found[name] for name in ("unique", "unique_counts", "repeated")] == [100, 1000, 25]
    assert [found[name] for name in ("float", "int", "bool", "list")] == [3.0, 3, False, [3, 3]]
    assert sorted(found["few"]) == [0] * 6 + [128] * 2
    assert sorted(found["many"]) == [0] * 248 + [4096] * 8
    assert sorted(found["split"]) == [0] * 6 + [128] * 2
    assert [found[name] for name in ("loop", "loop_of_a_known_length", "broken_out")] == [7, 7, 7]
    listed = {(each["what"], each["line"]): each["answer"] for each in answer["inventions"]}
    kept = listed["nonzero", line_of("sizes", "kept")]
    assert kept == "524,288 of 1,048,576 elements are kept (--assume nonzero=0.5)"
    assert "32,768 choices, 4,096 for each of the same 8 of 256 (--assume routing=worst)" in listed.values()
    assert "100 of 1,000 values are distinct (--assume unique=0.1)" in listed.values()
    assert "each of 10 elements comes 2.5 times, 25 in all (--assume repeats=2.5)" in listed.values()
    assert "True after 7 turns (--assume turns=7)" in listed.values()


def test_what_is_assumed_for_a_line_wins_and_is_for_that_line_alone(run: Run) -> None:
    marks = ("kept", "the bool", "the loop")
    kept, asked, loop = (f"programs/values_sizes.py:{line_of('sizes', mark)}" for mark in marks)
    assume = f"nonzero=0.5,{kept}=0.25,{asked}=1,{loop}=1,values_sizes.py:1=0.5,values_sizes.py:2=worst"
    answer = run("sizes", assume=assume)
    found = answer["found"]
    assert (found["kept"], found["where"]) == (1 << 18, 1 << 19)
    assert (found["bool"], found["loop"]) == (True, 1)
    assert answer["fates"] == {
        f"{kept}=0.25": "used", f"{asked}=1": "used", f"{loop}=1": "used",
        "values_sizes.py:1=0.5": "", "values_sizes.py:2=worst": "",
    }  # fmt: skip
    answer = run("sizes", assume=f"values_sizes.py:{line_of('sizes', 'kept')}=worst")
    assert (answer["found"]["kept"], list(answer["fates"].values())) == (1 << 20, ["nonzero"])
