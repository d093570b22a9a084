"""How far a metastore has come, told by a file that lies elsewhere: beside the WAL.

A metastore whose journal was lost, cut short or replaced by an older copy opens as if nothing had happened, at an earlier
revision, and everything decided since would be decided a second time. The mark is written after each commit, before
anybody is told of it, so a metastore that is behind its mark has been rolled back, and one that is not the mark's own has
been exchanged. Written without a flush: it survives the death of the process; a power cut can only leave it behind the
metastore, which means nothing.
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.errors import StorageFailed

FILE_NAME: Final = "metastore.mark"

_LAYOUT: Final = struct.Struct(">6sHQQ")
_MAGIC: Final = b"HRMARK"
_VERSION: Final = 1
_CRC: Final = struct.Struct(">I")


class Marked(NamedTuple):
    """What the mark says."""

    identity: int
    """Of the metastore's file, given once when it was made."""
    revision: int


class RevisionMark:
    """One open mark. Calls block; they belong to whoever commits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(f"cannot use {path}: {error.strerror}") from error

    def read(self) -> Marked | None:
        """None when it was never written, or is damaged: then it cannot tell anything."""
        data = os.pread(self._fd, _LAYOUT.size + _CRC.size, 0)
        if len(data) != _LAYOUT.size + _CRC.size or _CRC.unpack_from(data, _LAYOUT.size)[0] != crc32c(
            data[: _LAYOUT.size]
        ):
            return None
        magic, version, identity, revision = _LAYOUT.unpack_from(data)
        return Marked(identity, revision) if (magic, version) == (_MAGIC, _VERSION) else None

    def write(self, marked: Marked) -> None:
        body = _LAYOUT.pack(_MAGIC, _VERSION, *marked)
        try:
            os.pwrite(self._fd, body + _CRC.pack(crc32c(body)), 0)
        except OSError as error:
            raise StorageFailed(f"cannot write {self.path}: {error.strerror}") from error

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)
