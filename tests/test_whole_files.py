"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.whole_files import whole_file


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("before")
    path.chmod(0o600)
    with whole_file(path, "result") as file:
        file.write(b"after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ZeroDivisionError(), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("before")
    expected = UsageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as raised, whole_file(path, "result") as file:
        file.write(b"aft")
        raise error
    if isinstance(error, OSError):
        assert str(raised.value) == (
            f"The result could not be saved as {path}: No space left on device; choose another path."
        )
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/run.json", "No such file or directory"),
        ("file/run.json", "Not a directory"),
        (".", "Is a directory"),
        ("n" * 256, "File name too long"),
    ],
)
def test_a_place_that_cannot_be(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as raised, whole_file(tmp_path / name, "page") as file:
        file.write(b"")
    assert str(raised.value) == (f"The page could not be saved as {tmp_path / name}: {reason}; choose another path.")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/run.json")
    for content in (b"first", b"second"):
        with whole_file(link, "result") as file:
            file.write(content)
        assert link.is_symlink() and (tmp_path / "there" / "run.json").read_bytes() == content


def test_a_longest_name_can_be_written(tmp_path: Path) -> None:
    with whole_file(tmp_path / ("ü" * 127), "result") as file:
        file.write(b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_a_device_and_a_pipe_are_written_to_as_they_are(tmp_path: Path) -> None:
    with whole_file("/dev/null", "result") as file:
        file.write(b"gone")
    assert Path("/dev/null").is_char_device()
    read, written = os.pipe()
    with whole_file(f"/dev/fd/{written}", "result") as file:
        file.write(b"through")
    os.close(written)
    assert os.read(read, 100) == b"through"
    os.close(read)


def test_a_pipe_that_its_reader_closed_is_no_wrong_path() -> None:
    read, written = os.pipe()
    os.close(read)
    with pytest.raises(BrokenPipeError), whole_file(f"/dev/fd/{written}", "result") as file:
        file.write(b"through")
    os.close(written)
