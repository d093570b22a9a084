import os
from collections.abc import Iterator
from contextlib import closing
from io import FileIO
from pathlib import Path

import pytest

from headrace.cli.lines import Lines


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """What is read from, and what is written to."""
    reading, writing = os.pipe()
    with (
        closing(os.fdopen(reading, "rb", buffering=0)) as source,
        closing(os.fdopen(writing, "wb", buffering=0)) as sink,
    ):
        yield source, sink


def test_a_pipe_that_pauses_says_so_once(pipe: tuple[FileIO, FileIO]) -> None:
    source, sink = pipe
    lines = iter(Lines(source, linger_s=0))
    sink.write(b"one\ntwo\nthr")
    assert [next(lines) for _ in range(3)] == [b"one\n", b"two\n", None]
    sink.write(b"ee\n")
    assert [next(lines) for _ in range(2)] == [b"three\n", None]
    sink.write(b"no end")
    sink.close()
    assert list(lines) == [b"no end"]


def test_what_follows_in_time_is_no_pause(pipe: tuple[FileIO, FileIO]) -> None:
    source, sink = pipe
    lines = iter(Lines(source, linger_s=3600))
    sink.write(b"one\n")
    assert next(lines) == b"one\n"
    sink.write(b"two\n")
    sink.close()
    assert list(lines) == [b"two\n"]


def test_what_comes_fast_is_not_torn_apart_by_the_clock(tmp_path: Path) -> None:
    written = [b"line %d\n" % number for number in range(100_000)]
    path = tmp_path / "lines"
    path.write_bytes(b"".join(written))
    with path.open("rb") as source:
        got = list(Lines(source, linger_s=0))
    assert [line for line in got if line is not None] == written
    # A file is always ready, and at its end too.
    assert None not in got


def test_what_was_read_and_not_yet_asked_for_is_there(pipe: tuple[FileIO, FileIO]) -> None:
    source, sink = pipe
    lines = Lines(source, linger_s=0)
    sink.write(b"one\ntwo\nthree\n")
    assert next(iter(lines)) == b"one\n"
    assert list(lines.taken()) == [b"two\n", b"three\n"]
