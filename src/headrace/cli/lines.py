"""Lines of a file, a pipe or a terminal, and the pauses between them."""

import os
import select
import time
from collections import deque
from collections.abc import Iterator
from typing import IO, Final

_READ_SIZE: Final = 256 * 1024


class Lines:
    """Each line with its end, and None where nothing has followed for `linger_s`: who gathers lines lets go of them then."""

    def __init__(self, source: IO[bytes], *, linger_s: float) -> None:
        self._number = source.fileno()
        self._linger_s = linger_s
        self._whole: deque[bytes] = deque()

    def __iter__(self) -> Iterator[bytes | None]:
        rest = b""
        due_s: float | None = None
        while True:
            if due_s is not None and not self._comes_before(due_s):
                yield None
                due_s = None
            data = os.read(self._number, _READ_SIZE)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            if whole and due_s is None:
                due_s = time.monotonic() + self._linger_s
            self._whole.extend(line + b"\n" for line in whole)
            yield from self.taken()
        if rest:
            yield rest

    def taken(self) -> Iterator[bytes]:
        """What was read and not yet asked for: nobody else will see it."""
        while self._whole:
            yield self._whole.popleft()

    def _comes_before(self, due_s: float) -> bool:
        """Also true when it is late already, but more is there: what comes fast is not torn apart by the clock."""
        ready, _, _ = select.select([self._number], [], [], max(0.0, due_s - time.monotonic()))
        return bool(ready)
