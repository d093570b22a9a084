"""The node's directory: one process at a time, nobody else's to read, and where its doors are.

Records lie in it as they came, whoever may read their topics: so directories are 700 and files 600, whatever the umask says.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.errors import Fault
from headrace.telemetry.logging import get_logger

_LOCK: Final = "lock"
_ENDPOINTS: Final = "endpoints.json"
_OTHERS: Final = 0o077
"""What everybody but the owner may do."""

log = get_logger(__name__)


class DataDir:
    """Held by this process from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.former_umask = 0
        """What files elsewhere are made with: the pipeline's tables may be for others to read."""
        self._lock_fd = -1

    def open(self) -> None:
        self.former_umask = os.umask(_OTHERS)
        try:
            self._take()
        except BaseException:
            os.umask(self.former_umask)
            raise
        self._tighten()

    def _take(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
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

    def _tighten(self) -> None:
        """A directory that an older headrace, or somebody by hand, has made open to others. Deeper down nobody gets then."""
        files = [entry for entry in self.path.iterdir() if entry.is_file() and not entry.is_symlink()]
        opened = [path for path in (self.path, *files) if path.stat().st_mode & _OTHERS]
        try:
            for path in opened:
                path.chmod(path.stat().st_mode & 0o777 & ~_OTHERS)
        except OSError as error:
            log.error(
                "others may read this node's data, and its owner has to change that",
                path=str(self.path),
                reason=error.strerror,
                fix=f"chmod -R go= {self.path}",
            )
            return
        if opened:
            log.warning("others could read this node's data; now only its owner can", path=str(self.path))

    def publish(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Say where every door listens; whoever started us waits for this file."""
        draft = self.path / f"{_ENDPOINTS}.new"
        draft.write_text(json.dumps({name: f"{host}:{port}" for name, (host, port) in endpoints.items()}, indent=2))
        draft.replace(self.path / _ENDPOINTS)

    def close(self) -> None:
        self._remove_endpoints()
        os.close(self._lock_fd)
        os.umask(self.former_umask)

    def _remove_endpoints(self) -> None:
        (self.path / _ENDPOINTS).unlink(missing_ok=True)
