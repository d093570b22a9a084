"""A range of an open file, where bytes would be: it goes to a socket without passing through this process.

Whoever makes one has verified its bytes since the file was opened, and the file never changes. The system may have
dropped them from its memory since: `is_in_memory` tells, and whoever finds that it has verifies them again.
"""

import errno
import os
from pathlib import Path
from typing import Final

_PROBE_STEP: Final = 128 * 1024
"""The system reads and drops file pages in stretches: one byte in so many is looked at."""


class OpenFile:
    """A file open for reading. It is closed when nothing refers to it any more, also if it has been deleted by then."""

    __slots__ = ("__weakref__", "descriptor")

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class FileRange:
    """Whole batches back to back; `end_offset` is behind the last of them."""

    __slots__ = ("end_offset", "file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int, end_offset: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.end_offset = end_offset

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes themselves, for who cannot do without. `OSError` when the file has lost them."""
        data = os.pread(self.file.descriptor, self.length, self.position)
        if len(data) != self.length:
            raise OSError(errno.EIO, f"{len(data)} of {self.length} bytes at {self.position}: the file was cut short")
        return data

    def is_in_memory(self) -> bool:
        """Whether sending it would not wait for the disk, as far as a look at some of its pages tells."""
        byte = bytearray(1)
        end = self.position + self.length
        try:
            for position in (*range(self.position, end, _PROBE_STEP), end - 1):
                os.preadv(self.file.descriptor, [byte], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # A filesystem that cannot tell; waiting for it is what reading a file means there.
            return error.errno in (errno.EOPNOTSUPP, errno.EINVAL)
        return True
