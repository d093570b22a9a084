"""A data directory belongs to one node, and is a directory."""

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
