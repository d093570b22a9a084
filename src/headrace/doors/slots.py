"""The order of answers: each request of a connection has a slot, filled in any order and written in theirs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.records.batch import Piece

if TYPE_CHECKING:
    from headrace.doors.connection import FramedConnection

SLOTS_MAX: Final = 512
"""Requests of one connection under way at once; beyond it we stop reading and TCP tells the client. `_produce.c` too."""


class Slot:
    """The place of one answer in the order of answers."""

    __slots__ = ("_connection", "chunks", "expires_ms", "on_expiry", "on_filled", "on_lost")

    def __init__(self, connection: "FramedConnection") -> None:
        self._connection = connection
        self.chunks: Sequence[Piece] | None = None
        self.expires_ms = 0
        self.on_expiry: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        """Told when the client is gone: nobody waits for this answer any more."""
        self.on_filled: Callable[[], None] | None = None

    def fill(self, chunks: Sequence[Piece]) -> None:
        """This is the answer; it goes out as soon as all before it have. The first fill counts."""
        if self.chunks is None:
            self.chunks = chunks
            # Whoever would have been told mostly holds this slot: let go of, neither needs the garbage collector.
            on_filled, self.on_filled, self.on_expiry, self.on_lost = self.on_filled, None, None, None
            self._connection.answered(self)
            if on_filled is not None:
                on_filled()

    def close(self) -> None:
        """Nothing to answer: end the connection, after what stands before this slot."""
        self._connection.close_after(self)
