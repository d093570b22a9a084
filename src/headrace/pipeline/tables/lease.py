"""Who is the writer of a table: one live process per pipeline, so that two do not race for every commit.

The lease is a table property renewed by each commit. It saves work; correctness never rests on it, because markers and
coverage are compared inside the commit. On one machine a dead holder is recognised by its process id, so a restart after a
crash does not wait.
"""

import os
import socket
from typing import Final

import msgspec

LEASE_MS: Final = 60_000
"""Longer than any sane pause between two commits of a running pipeline; how long another machine waits after a crash."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    process_id: int
    until_ms: int

    def is_held_by_another(self, *, now_ms: int) -> bool:
        if self.until_ms <= now_ms:
            return False
        if self.host != socket.gethostname():
            return True
        return self.process_id != os.getpid() and _is_alive(self.process_id)


def new_lease(*, now_ms: int) -> Lease:
    return Lease(host=socket.gethostname(), process_id=os.getpid(), until_ms=now_ms + LEASE_MS)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
