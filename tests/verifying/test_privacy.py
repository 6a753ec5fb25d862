"""What a row says of a program is fit for others to see."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.verifying.privacy import HIDDEN, hash_of_source, public_words


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["/home/ada/nets/train.py", "--batch", "8"], ["train.py", "--batch", "8"]),
        (["../ada/train.py", "--lr=3e-4", "--bf16"], ["train.py", "--lr=3e-4", "--bf16"]),
        (["-m", "package.train", "--data", "/data/x"], ["-m", "package.train", "--data", HIDDEN]),
        (["train.py", "--out=runs/7", "~/x", "me@lab:x"], ["train.py", f"--out={HIDDEN}", HIDDEN, HIDDEN]),
        (["train.py", "--hf-token", "abc", "--batch", "8"], ["train.py", "--hf-token", HIDDEN, "--batch", "8"]),
        (
            ["train.py", "--api_key=abc", "--num-tokens", "5"],
            ["train.py", f"--api_key={HIDDEN}", "--num-tokens", "5"],
        ),
        (["train.py", "--tokenizer=x", "--password", "12"], ["train.py", "--tokenizer=x", "--password", HIDDEN]),
        (
            ["train.py", "--per_device_train_batch_size_or_so", "8"],
            ["train.py", "--per_device_train_batch_size_or_so", "8"],
        ),
        (
            ["train.py", "wandb.api_key=abc123", "+hub.token=x", "password=hunter2", "lr=3e-4"],
            ["train.py", f"wandb.api_key={HIDDEN}", f"+hub.token={HIDDEN}", f"password={HIDDEN}", "lr=3e-4"],
        ),
        (["train.py", "--token", "-x1"], ["train.py", "--token", HIDDEN]),
        (["train.py", "hf_abcdefgh", "a" * 40], ["train.py", HIDDEN, HIDDEN]),
        (["train.py", "--run", "ada-7", "--on", "lovelace"], ["train.py", "--run", HIDDEN, "--on", HIDDEN]),
        (["torchrun", "--nproc-per-node", "2", "/x/train.py"], ["torchrun", "--nproc-per-node", "2", "train.py"]),
        (["/usr/bin/python", "train.py", "other.py"], [HIDDEN, "train.py", "other.py"]),
    ],
)
def test_words(words: list[str], shown: list[str]) -> None:
    assert public_words(words, private=["Ada", "lovelace"]) == shown


@given(st.lists(st.sampled_from(["--x", "--x=", "train.py", "ada", "b=", "/", "8", "Ada/x.py"]), max_size=6))
def test_no_name_and_no_path_is_left(words: list[str]) -> None:
    for word in public_words(["".join(words), *words], private=["ada"]):
        assert "ada" not in word.lower()
        assert "/" not in word


def test_the_hash_is_of_contents_alone(tmp_path: Path) -> None:
    for folder, names in (("one", ("a.py", "b.py")), ("other", ("z.py", "c.py"))):
        (tmp_path / folder).mkdir()
        for name, text in zip(names, ("x = 1", "y = 2"), strict=True):
            (tmp_path / folder / name).write_text(text)
    one, other = ([*(tmp_path / folder).iterdir()] for folder in ("one", "other"))
    assert hash_of_source(one) == hash_of_source(other)
    one[0].write_text("x = 3")
    assert hash_of_source(one) != hash_of_source(other)
