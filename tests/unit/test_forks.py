import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.forks import ANSWER, FORGET, FORK, MESSAGE, serve

WAIT_S = 60.0


class Forks:
    def __init__(self) -> None:
        self.asker, theirs = socket.socketpair()
        self.asker.settimeout(WAIT_S)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.forks", "tests.support.echoing"],
                stdin=theirs.fileno(),
                stderr=subprocess.PIPE,
            )

    def fork(self) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.settimeout(WAIT_S)
        with theirs:
            socket.send_fds(self.asker, [MESSAGE.pack(FORK, 0)], [theirs.fileno()])
        return ANSWER.unpack(self.asker.recv(ANSWER.size))[0], ours


@pytest.fixture
def forks() -> Iterator[Forks]:
    started = Forks()
    yield started
    started.asker.close()
    _, errors = started.process.communicate(timeout=WAIT_S)
    assert (started.process.returncode, errors) == (0, b"")


def test_each_that_is_forked_has_an_input_and_an_output_of_its_own(forks: Forks) -> None:
    (first_id, first), (second_id, second) = forks.fork(), forks.fork()
    assert first_id != second_id
    with first, second:
        for connection, said in ((second, b"two\n"), (first, b"one\n")):
            connection.sendall(said)
            assert connection.recv(64) == said.upper()
            assert connection.recv(64) == b""


def test_one_that_is_to_be_forgotten_is_killed_and_nobody_else(forks: Forks) -> None:
    (first_id, first), (_, second) = forks.fork(), forks.fork()
    with first, second:
        for connection in (first, second):
            connection.sendall(b"stay\n")
            assert connection.recv(64) == b"STAY\n"
        forks.asker.sendall(MESSAGE.pack(FORGET, first_id) + MESSAGE.pack(FORGET, 1))
        assert first.recv(64) == b""
        third = forks.fork()[1]
        with third:
            third.sendall(b"hello\n")
            assert third.recv(64) == b"HELLO\n"
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.recv(64)


def test_nobody_outlives_who_asked(forks: Forks) -> None:
    with forks.fork()[1] as standard:
        standard.sendall(b"stay\n")
        assert standard.recv(64) == b"STAY\n"
        forks.asker.close()
        assert standard.recv(64) == b""
    assert forks.process.wait(WAIT_S) == 0


def test_one_that_is_given_up_before_it_was_told_anything_says_nothing(forks: Forks) -> None:
    with forks.fork()[1] as standard:
        standard.shutdown(socket.SHUT_WR)
        assert standard.recv(64) == b""


def test_who_is_asked_for_nothing_ends() -> None:
    asker, theirs = socket.socketpair()
    with asker, theirs:
        serve(theirs, lambda: None, idle_s=0)
