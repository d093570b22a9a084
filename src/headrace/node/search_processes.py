"""Search processes, as the node has them: forked by one that has loaded what they need, which begins with the first search."""

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from headrace.errors import Fault
from headrace.forks import ANSWER, FORGET, FORK, MESSAGE

_MODULE: Final = "headrace.tier.search.worker"
_LINE_MAX: Final = 256 * 1024 * 1024
"""One record, in base64, with its headers."""
_PIECE: Final = 64 * 1024
_TRIES: Final = 2
"""The process that forks may have ended, being idle, just when it was asked."""


class Talk(NamedTuple):
    """Both ends of a conversation with one search process."""

    lines: asyncio.StreamReader
    orders: asyncio.StreamWriter


class _Forked(NamedTuple):
    process_id: int
    standard: socket.socket
    """The other end of its standard input and output."""
    forks: socket.socket

    def end(self) -> None:
        # Where whoever forked it is gone, it is gone as well.
        with contextlib.suppress(OSError):
            self.forks.send(MESSAGE.pack(FORGET, self.process_id))


class SearchProcesses:
    def __init__(self) -> None:
        self._forks: tuple[Process, socket.socket] | None = None
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Talk]:
        """A search process. At the end of the block it is gone, whatever it was doing."""
        asking = asyncio.ensure_future(self._ask())
        try:
            # Not given up in the middle: the answer would be taken for that to the next question.
            forked = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_discard)
            raise
        reader, writer = await asyncio.open_connection(sock=forked.standard, limit=_LINE_MAX)
        try:
            yield Talk(reader, writer)
        finally:
            forked.end()
            # Closed once it is dead: it would take half an order for a whole one.
            with contextlib.suppress(OSError):
                while await reader.read(_PIECE):
                    pass
            writer.close()

    async def _ask(self) -> _Forked:
        async with self._asking:
            for _ in range(_TRIES):
                forks = await self._started()
                ours, theirs = socket.socketpair()
                with theirs, contextlib.suppress(OSError):
                    socket.send_fds(forks, [MESSAGE.pack(FORK, 0)], [theirs.fileno()])
                    answer = await asyncio.get_running_loop().sock_recv(forks, ANSWER.size)
                    if len(answer) == ANSWER.size:
                        return _Forked(ANSWER.unpack(answer)[0], ours, forks)
                ours.close()
                await self._give_up()
        raise Fault("no search process could be started; standard error says why")

    async def _started(self) -> socket.socket:
        if self._forks is None:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                # numpy would start threads for its arithmetic, and they would be missing in whatever is forked.
                environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "headrace.forks", _MODULE, stdin=theirs.fileno(), env=environment
                )
            self._forks = process, ours
        return self._forks[1]

    async def _give_up(self) -> None:
        assert self._forks is not None
        process, connection = self._forks
        self._forks = None
        connection.close()
        await process.wait()


def _discard(asking: "asyncio.Future[_Forked]") -> None:
    if not asking.cancelled() and asking.exception() is None:
        forked = asking.result()
        forked.end()
        forked.standard.close()
