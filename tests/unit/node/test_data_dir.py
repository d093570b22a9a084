"""A data directory belongs to one node, and is a directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import Fault
from headrace.node.data_dir import DataDir


def test_a_file_in_its_place_is_named_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    with pytest.raises(Fault, match=r"data: it is not a directory$"):
        DataDir(tmp_path / "data").open()


def test_another_process_is_named(tmp_path: Path) -> None:
    held = DataDir(tmp_path)
    held.open()
    with pytest.raises(Fault, match=r"in use by process \d+; stop it first$"):
        DataDir(tmp_path).open()
    held.close()
    freed = DataDir(tmp_path)
    freed.open()
    freed.close()


@pytest.fixture
def careless() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("careless")
def test_only_the_owner_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    directory = DataDir(tmp_path / "deep" / "data")
    directory.open()
    directory.publish({"kafka": ("127.0.0.1", 1)})
    (directory.path / "made by a library").touch()
    (directory.path / "wal").mkdir()
    assert {mode(each) for each in directory.path.iterdir() if each.is_file()} == {0o600}
    assert mode(directory.path) == mode(directory.path / "wal") == 0o700
    directory.close()
    assert os.umask(0) == 0


@pytest.mark.usefixtures("careless")
def test_one_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "metastore.sqlite").touch()
    assert mode(tmp_path / "data" / "metastore.sqlite") == 0o666
    directory = DataDir(tmp_path / "data")
    directory.open()
    assert mode(tmp_path / "data") == 0o700
    assert mode(tmp_path / "data" / "metastore.sqlite") == 0o600
    directory.close()
