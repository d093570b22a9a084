"""A process that has loaded a module and forks whenever it is asked: what takes long to load is loaded once.

`python -m headrace.forks MODULE` talks to whoever started it over standard input, a socket, in messages of five bytes:

    b"+", 0      with a socket, which becomes standard input and output of a new process that calls the module's `main`; the
                 answer is the id of the process, four bytes
    b"-", id     kill that process, if it has not ended by itself, and forget it

An id stays the process's own until it was forgotten: it cannot be a stranger's meanwhile. When whoever started this is gone, or has
asked for nothing for a while, this process ends, and those it has forked with it.
"""

import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

MESSAGE: Final = struct.Struct(">ci")
ANSWER: Final = struct.Struct(">i")
FORK: Final = b"+"
FORGET: Final = b"-"
_IDLE_S: Final = 600.0
"""Who asks, asks again; who went home need not have forty megabytes kept."""


def serve(asker: socket.socket, run: Callable[[], None], *, idle_s: float = _IDLE_S) -> None:
    """Until the asker is gone, or `idle_s` pass without a process or a question."""
    forked: set[int] = set()
    try:
        while forked or select.select([asker], [], [], idle_s)[0]:
            message, descriptors, _, _ = socket.recv_fds(asker, MESSAGE.size, 1)
            if len(message) < MESSAGE.size:
                return
            verb, process_id = MESSAGE.unpack(message)
            if verb == FORK:
                forked.add(_fork(asker, descriptors[0], run))
            elif process_id in forked:
                forked.remove(process_id)
                _end(process_id)
    finally:
        for each in forked:
            _end(each)


def _fork(asker: socket.socket, standard: int, run: Callable[[], None]) -> int:
    process_id = os.fork()
    if not process_id:
        _become(asker, standard, run)
    os.close(standard)
    asker.sendall(ANSWER.pack(process_id))
    return process_id


def _become(asker: socket.socket, standard: int, run: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        asker.close()
        os.dup2(standard, 0)
        os.dup2(standard, 1)
        os.close(standard)
        if not _is_given_up():
            run()
            sys.stdout.flush()
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        # Whoever wanted to know does not any more.
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _is_given_up() -> bool:
    """Whether standard input ended before anything was said."""
    with socket.socket(fileno=os.dup(0)) as standard:
        return not standard.recv(1, socket.MSG_PEEK)


def _end(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)


def main() -> None:
    # Ctrl-C on a terminal is for whoever started this, who lets us know by going away.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asker = socket.socket(fileno=os.dup(0))
    run = importlib.import_module(sys.argv[1]).main
    # What was loaded is never collected: forked processes share its pages as long as nobody writes to them.
    gc.freeze()
    serve(asker, run)


if __name__ == "__main__":
    main()
