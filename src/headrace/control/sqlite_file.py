"""The metastore's file: one SQLite database, layout in docs/formats/metastore.md.

Every call blocks and belongs to one thread at a time, the writer's. `commit` returns only when SQLite has flushed
its journal (`synchronous=FULL`). The file is locked for as long as it is open, so two nodes cannot share it.
"""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.control.keyspace import Draft, Keyspace
from headrace.control.metastore import KeyValue, LeaseId
from headrace.errors import Conflict, Corrupted, StorageFailed

APPLICATION_ID: Final = 0x48444D53
"""`HDMS`: what `file` and our own check recognise the database by."""

FORMAT_VERSION: Final = 1

IN_MEMORY: Final = ":memory:"

_SCHEMA: Final = """
CREATE TABLE item (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  create_revision INTEGER NOT NULL,
  mod_revision INTEGER NOT NULL,
  version INTEGER NOT NULL,
  lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('revision', 1), ('lease', 0);
"""

_ROWS_AT_ONCE: Final = 64
"""Most rows of one statement, a power of two. After each statement the thread asks for the interpreter again, and beside a busy event
loop waits longer for it than the rows take."""
_Row = tuple[str, bytes, int, int, int, int]


class SqliteFile:
    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._connection = _connect(path)

    def load(self) -> Keyspace:
        try:
            items = [
                KeyValue(key, value, created, modified, version, LeaseId(lease))
                for key, value, created, modified, version, lease in self._connection.execute(
                    "SELECT key, value, create_revision, mod_revision, version, lease FROM item"
                )
            ]
            leases = dict(self._connection.execute("SELECT id, ttl_ms FROM lease"))
            return Keyspace(items, revision=self._counter("revision"), leases=leases)
        except sqlite3.Error as error:
            raise Corrupted(f"metastore {self._path} cannot be read: {error}") from error

    def last_lease(self) -> LeaseId:
        return LeaseId(self._counter("lease"))

    def commit(self, draft: Draft) -> None:
        """Make the draft durable. An error leaves the file as it was before, or as after: nobody may go on."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Each statement costs, also one that has nothing to do: see `_ROWS_AT_ONCE`.
            if deleted := _deleted_keys(draft):
                connection.executemany("DELETE FROM item WHERE key = ?", deleted)
            self._put_all(_item_rows(draft))
            if draft.leases_granted:
                connection.executemany("INSERT INTO lease VALUES (?, ?)", draft.leases_granted.items())
                self._set_counter("lease", max(draft.leases_granted))
            if draft.leases_revoked:
                connection.executemany("DELETE FROM lease WHERE id = ?", [(id,) for id in draft.leases_revoked])
            self._set_counter("revision", draft.revision)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageFailed(f"metastore {self._path}: commit failed: {error}") from error

    def snapshot_to(self, path: Path) -> None:
        """Write a compact, consistent copy of the whole store to a new file."""
        try:
            self._connection.execute("VACUUM INTO ?", (str(path),))
        except sqlite3.Error as error:
            raise StorageFailed(f"metastore snapshot {path}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def _put_all(self, rows: Sequence[_Row]) -> None:
        start, count = 0, _ROWS_AT_ONCE
        while start < len(rows):
            if start + count > len(rows):
                # Powers of two only: as few different statements, which the connection keeps prepared.
                count //= 2
                continue
            self._connection.execute(_put(count), [field for row in rows[start : start + count] for field in row])
            start += count

    def _counter(self, name: str) -> int:
        row = self._connection.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise Corrupted(f"metastore {self._path} has no counter {name}")
        return int(row[0])

    def _set_counter(self, name: str, value: int) -> None:
        self._connection.execute("UPDATE counter SET value = ? WHERE name = ?", (value, name))


def _deleted_keys(draft: Draft) -> list[tuple[str]]:
    return [(key,) for key, item in draft.changes.items() if item is None]


@functools.cache
def _put(count: int) -> str:
    return f"INSERT OR REPLACE INTO item VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * count)}"


def _item_rows(draft: Draft) -> list[_Row]:
    return [
        (item.key, item.value, item.create_revision, item.mod_revision, item.version, item.lease)
        for item in draft.changes.values()
        if item is not None
    ]


def _connect(path: Path | str) -> sqlite3.Connection:
    _require_rights(path)
    try:
        # Autocommit mode: transactions are exactly where `commit` says BEGIN and COMMIT. No busy timeout: whoever
        # holds the file holds it for as long as it lives.
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StorageFailed(f"metastore {path} cannot be opened: {error}") from error
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        try:
            _prepare(connection, path)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Conflict(f"metastore {path} is open in another process") from error
            raise StorageFailed(f"metastore {path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Corrupted(f"metastore {path} is not a readable database: {error}") from error
        undo.pop_all()
    return connection


def _require_rights(path: Path | str) -> None:
    """Of files that somebody else has left behind SQLite would only say "disk I/O error"."""
    for file in (str(path), f"{path}-wal"):
        if os.path.exists(file) and not os.access(file, os.R_OK | os.W_OK):
            raise StorageFailed(f"metastore {file} cannot be read and written: Permission denied")


def _prepare(connection: sqlite3.Connection, path: Path | str) -> None:
    # The exclusive lock must be asked for before the first look into a WAL database: then SQLite keeps the WAL's
    # index in its own memory, without a shared-memory file, and holds the lock until close.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN EXCLUSIVE")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application_id, version) == (0, 0):
        (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if table_count:
            raise Corrupted(f"{path} is a database of something else, not a metastore")
        # One transaction: a crash while creating leaves an empty database, which is created again.
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    elif application_id != APPLICATION_ID:
        raise Corrupted(f"{path} is a database of something else, not a metastore")
    elif version != FORMAT_VERSION:
        raise Corrupted(f"metastore {path} has format {version}; this headrace reads {FORMAT_VERSION}")
    connection.execute("COMMIT")
    if path != IN_MEMORY:
        _sync_directory(Path(path).parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
