"""Files of a warehouse on this machine's disk, flushed when they are closed.

A table's commit is a row in the catalog that names a file which names others. SQLite flushes its row; were the files left to
the page cache, a power cut could leave a catalog that refers to empty files, or a checkpoint that is ahead of the tables.
pyiceberg loads the class by its name (`py-io-impl`), on the driver and on executors alike.
"""

import io
import os
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headrace.blob.local import flush_directory, make_directory

_BUFFER_BYTES: Final = 1024 * 1024


class FlushedFileIO(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's own FileIO, but for new files on local disks."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return FlushedFile(fs=self.fs_by_scheme(scheme, netloc), location=location, path=path)


class FlushedFile(PyArrowFile):  # type: ignore[misc]
    # pyiceberg's protocol for streams is met by any binary file.
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        make_directory(path.parent)
        return FlushedStream(path, "w" if overwrite else "x")


class FlushedStream(io.BufferedWriter):
    """Closing it puts the file, and its name, on the disk."""

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(io.FileIO(path, mode), _BUFFER_BYTES)
        self._directory = path.parent

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        flush_directory(self._directory)
