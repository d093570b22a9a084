"""A metastore's -wal file, kept while nobody knows yet whether the file is to be believed.

SQLite moves its journal into the database when the last connection closes, also when we close because something is wrong.
Then the right database could be put back, and its newest entries would be gone with the journal. So the journal has a second
name until everything was checked, and gets its own back after a refusal.
"""

import contextlib
import os
import shutil
from pathlib import Path


class KeptJournal:
    def __init__(self, database: Path | str) -> None:
        """Before SQLite opens the database."""
        self._path = Path(f"{database}-wal")
        self._kept = Path(f"{database}-wal.kept")
        if self._kept.exists() and not self._path.exists():
            self.put_back()  # A process that refused the file was killed before it could.
        self.let_go()
        if self._path.exists():
            try:
                os.link(self._path, self._kept)
            except OSError:
                shutil.copy2(self._path, self._kept)  # A file system without links.

    def put_back(self) -> None:
        """After a refusal, and once SQLite has closed."""
        with contextlib.suppress(FileNotFoundError):
            self._kept.replace(self._path)

    def let_go(self) -> None:
        """The file is believed, and the journal is SQLite's alone."""
        self._kept.unlink(missing_ok=True)
