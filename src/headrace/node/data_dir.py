"""The node's directory: one process at a time, and where its doors are."""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.errors import Fault

_LOCK: Final = "lock"
_ENDPOINTS: Final = "endpoints.json"


class DataDir:
    """Held by this process from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd = -1

    def open(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_fd = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            is_file = isinstance(error, FileExistsError)
            reason = "it is not a directory" if is_file else error.strerror
            raise Fault(f"cannot use data directory {self.path}: {reason}") from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock_fd, 32, 0).decode(errors="replace").strip() or "another process"
            os.close(self._lock_fd)
            raise Fault(f"data directory {self.path} is in use by process {holder}; stop it first") from error
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, str(os.getpid()).encode(), 0)
        self._remove_endpoints()

    def publish(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Say where every door listens; whoever started us waits for this file."""
        draft = self.path / f"{_ENDPOINTS}.new"
        draft.write_text(json.dumps({name: f"{host}:{port}" for name, (host, port) in endpoints.items()}, indent=2))
        draft.replace(self.path / _ENDPOINTS)

    def close(self) -> None:
        self._remove_endpoints()
        os.close(self._lock_fd)

    def _remove_endpoints(self) -> None:
        (self.path / _ENDPOINTS).unlink(missing_ok=True)
