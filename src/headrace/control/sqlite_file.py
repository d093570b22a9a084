"""The metastore's file: one SQLite database, layout in docs/formats/metastore.md.

Every call blocks and belongs to one thread at a time, the writer's. `commit` returns only when SQLite has flushed
its journal (`synchronous=FULL`). The file is locked for as long as it is open, so two nodes cannot share it.

Nothing is believed that a disk can have changed: SQLite checks the structure, each row has a CRC, a digest covers all rows
together, so that one that is missing or stale is noticed too, and a mark beside the WAL (`revision_mark`) knows the newest
revision. What does not fit is refused with the way on.
"""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.chance import SYSTEM_CHANCE
from headrace.control.kept_journal import KeptJournal
from headrace.control.keyspace import Draft, Keyspace
from headrace.control.metastore import KeyRange, KeyValue, LeaseId
from headrace.control.revision_mark import Marked, RevisionMark
from headrace.control.row_digest import NOT_A_ROW, Row, Tally, crc_of, is_whole, lease_crc, row_crc
from headrace.errors import Conflict, Corrupted, StorageFailed
from headrace.telemetry.logging import get_logger

APPLICATION_ID: Final = 0x48444D53
"""`HDMS`: what `file` and our own check recognise the database by."""

FORMAT_VERSION: Final = 2

IN_MEMORY: Final = ":memory:"

_ITEM: Final = """CREATE TABLE item (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL,
  create_revision INTEGER NOT NULL,
  mod_revision INTEGER NOT NULL,
  version INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  crc INTEGER NOT NULL
) WITHOUT ROWID"""

_SCHEMA: Final = f"""
{_ITEM};
CREATE TABLE lease (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('revision', 1), ('lease', 0)
"""

_WAY_ON: Final = (
    "put back a good copy of it and of its -wal file; or move both away and run `headrace tier restore`, "
    "which makes a new one from the bucket"
)
_NAMED_MAX: Final = 3
"""Damaged rows that a message names."""
_IDENTITY_BITS: Final = 62

log = get_logger(__name__)

_ROWS_AT_ONCE: Final = 64
"""Most rows of one statement, a power of two. After each statement the thread asks for the interpreter again, and beside a busy event
loop waits longer for it than the rows take."""


class SqliteFile:
    def __init__(self, path: Path | str, *, mark: Path | None = None, is_new: bool = False) -> None:
        """With a `mark`, the file has to be the one that was marked, and not behind it. With `is_new` it may be missing: a new one
        then takes its place."""
        self._path = path
        self._mark = RevisionMark(mark) if mark is not None else None
        with contextlib.ExitStack() as undo:
            if self._mark is not None:
                undo.callback(self._mark.close)
                is_new = is_new and not _is_there(path)
                if not is_new:
                    _require_marked_file(path, self._mark)
            self._journal = KeptJournal(path) if path != IN_MEMORY else None
            if self._journal is not None:
                undo.callback(self._journal.put_back)
            self._connection = _connect(path)
            undo.pop_all()
        self._is_new = is_new
        self._identity = 0
        self._lease = 0
        self._tally = Tally(0, 0)
        self.damaged: tuple[str, ...] = ()
        """Keys of rows that were damaged, could be done without, and are gone."""

    def load(self, expendable: Sequence[KeyRange] = ()) -> Keyspace:
        """Everything, checked. Damaged rows in `expendable` ranges are dropped; any other damage is `Corrupted`."""
        try:
            rows = self._connection.execute("SELECT * FROM item").fetchall()
            leases = dict(self._connection.execute("SELECT id, ttl_ms FROM lease"))
            counters = dict(self._connection.execute("SELECT name, value FROM counter"))
        except sqlite3.Error as error:
            raise self._corrupted(f"cannot be read: {error}") from error
        damaged = [row for row in rows if not is_whole(row)]
        if any(not _is_in(row[0], expendable) for row in damaged):
            named = ", ".join(str(row[0]) for row in damaged[:_NAMED_MAX])
            raise self._corrupted(f"has {len(damaged)} damaged entries of {len(rows)}, among them {named}")
        try:
            tally = Tally(0, 0).plus(row[6] for row in rows).plus(lease_crc(*lease) for lease in leases.items())
            self._lease, self._identity, revision = counters["lease"], counters["identity"], counters["revision"]
            digest = tally.digest(revision=revision, lease=self._lease, identity=self._identity)
            is_complete = digest == counters["digest"]
        except (KeyError, *NOT_A_ROW):
            is_complete = False
        if not is_complete:
            raise self._corrupted("does not hold what was written last: entries are missing, stale or changed")
        self._tally = tally
        self._meet_mark(revision)
        self._drop(damaged, revision)
        if self._journal is not None:
            self._journal.let_go()
            self._journal = None
        gone = {row[0] for row in damaged}
        items = [
            KeyValue(key, value, created, modified, version, LeaseId(lease))
            for key, value, created, modified, version, lease, _ in rows
            if key not in gone
        ]
        return Keyspace(items, revision=revision, leases=leases)

    def last_lease(self) -> LeaseId:
        return LeaseId(self._lease)

    def commit(self, draft: Draft) -> None:
        """Make the draft durable. An error leaves the file as it was before, or as after: nobody may go on."""
        connection = self._connection
        rows = _item_rows(draft)
        tally = self._tally_after(draft, rows)
        lease = max((self._lease, *draft.leases_granted))
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Each statement costs, also one that has nothing to do: see `_ROWS_AT_ONCE`.
            if deleted := _deleted_keys(draft):
                connection.executemany("DELETE FROM item WHERE key = ?", deleted)
            self._put_all(rows)
            if draft.leases_granted:
                connection.executemany("INSERT INTO lease VALUES (?, ?)", draft.leases_granted.items())
            if draft.leases_revoked:
                connection.executemany("DELETE FROM lease WHERE id = ?", [(id,) for id in draft.leases_revoked])
            self._put_counters(draft.revision, lease, tally)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageFailed(f"metastore {self._path}: commit failed: {error}") from error
        self._tally, self._lease = tally, lease
        if self._mark is not None:
            self._mark.write(Marked(self._identity, draft.revision))

    def snapshot_to(self, path: Path) -> None:
        """Write a compact, consistent copy of the whole store to a new file."""
        try:
            self._connection.execute("VACUUM INTO ?", (str(path),))
        except sqlite3.Error as error:
            raise StorageFailed(f"metastore snapshot {path}: {error}") from error

    def close(self) -> None:
        self._connection.close()
        if self._journal is not None:
            self._journal.put_back()
        if self._mark is not None:
            self._mark.close()

    def _meet_mark(self, revision: int) -> None:
        """The last check before anything is believed: is this the newest state of the file that was here?"""
        if self._mark is None:
            return
        marked = self._mark.read()
        if marked is not None and not self._is_new:
            if marked.identity != self._identity:
                raise Corrupted(
                    f"metastore {self._path} is not the one that {self._mark.path} belongs to: put back the right one; "
                    f"or, if this one is meant to take its place, remove {self._mark.path}"
                )
            if marked.revision > revision:
                raise Corrupted(
                    f"metastore {self._path} is at revision {revision} and was at {marked.revision} before: it is an older "
                    f"copy, or its -wal file is missing, cut short or damaged; {_WAY_ON}"
                )
        elif marked is None and os.fstat(self._mark.fileno()).st_size:
            log.error("the metastore's mark is damaged and is written anew", path=str(self._mark.path))
        self._mark.write(Marked(self._identity, revision))

    def _drop(self, damaged: Sequence[Row], revision: int) -> None:
        if not damaged:
            return
        self._tally = self._tally.minus(row[6] for row in damaged)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM item WHERE key = ?", [(row[0],) for row in damaged])
            self._put_counters(revision, self._lease, self._tally)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._corrupted(f"cannot be mended: {error}") from error
        self.damaged = tuple(row[0] for row in damaged)

    def _tally_after(self, draft: Draft, rows: Sequence[Row]) -> Tally:
        gone = [crc_of(item) for key in draft.changes if (item := draft.before(key)) is not None]
        gone += [lease_crc(lease, draft.ttl_ms_of(lease)) for lease in draft.leases_revoked]
        granted = [lease_crc(*lease) for lease in draft.leases_granted.items()]
        return self._tally.minus(gone).plus(row[6] for row in rows).plus(granted)

    def _put_counters(self, revision: int, lease: int, tally: Tally) -> None:
        digest = tally.digest(revision=revision, lease=lease, identity=self._identity)
        self._connection.execute(
            "INSERT OR REPLACE INTO counter VALUES ('revision', ?), ('lease', ?), ('digest', ?)",
            (revision, lease, digest),
        )

    def _corrupted(self, what: str) -> Corrupted:
        return _corrupted(self._path, what)

    def _put_all(self, rows: Sequence[Row]) -> None:
        start, count = 0, _ROWS_AT_ONCE
        while start < len(rows):
            if start + count > len(rows):
                # Powers of two only: as few different statements, which the connection keeps prepared.
                count //= 2
                continue
            self._connection.execute(_put(count), [field for row in rows[start : start + count] for field in row])
            start += count


def _deleted_keys(draft: Draft) -> list[tuple[str]]:
    return [(key,) for key, item in draft.changes.items() if item is None]


@functools.cache
def _put(count: int) -> str:
    return f"INSERT OR REPLACE INTO item VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * count)}"


def _item_rows(draft: Draft) -> list[Row]:
    return [
        (item.key, item.value, item.create_revision, item.mod_revision, item.version, item.lease, crc_of(item))
        for item in draft.changes.values()
        if item is not None
    ]


def _is_in(key: object, ranges: Sequence[KeyRange]) -> bool:
    return isinstance(key, str) and any(key in each for each in ranges)


def _corrupted(path: Path | str, what: str) -> Corrupted:
    return Corrupted(f"metastore {path} {what}; {_WAY_ON}")


def _is_there(path: Path | str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0


def _require_marked_file(path: Path | str, mark: RevisionMark) -> None:
    """Before SQLite makes a new one in its place."""
    if not _is_there(path) and (marked := mark.read()) is not None:
        raise Corrupted(
            f"metastore {path} is missing, and was at revision {marked.revision}: put it back with its -wal file; or run "
            f"`headrace tier restore`, which makes a new one from the bucket; or, to begin anew, remove {mark.path}"
        )


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
            raise _corrupted(path, f"is not a readable database: {error}") from error
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
        _put_first_digest(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    elif application_id != APPLICATION_ID:
        raise Corrupted(f"{path} is a database of something else, not a metastore")
    elif version > FORMAT_VERSION:
        raise Corrupted(f"metastore {path} has format {version}; this headrace reads up to {FORMAT_VERSION}")
    else:
        _require_sound(connection, path)
        if version == 1:
            _add_crcs(connection, path)
    connection.execute("COMMIT")
    if path != IN_MEMORY:
        _sync_directory(Path(path).parent)


def _require_sound(connection: sqlite3.Connection, path: Path | str) -> None:
    """What SQLite itself can tell of its pages; some milliseconds for ten thousand entries."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise _corrupted(path, f"is damaged: {' '.join(str(found).split())}")


def _add_crcs(connection: sqlite3.Connection, path: Path | str) -> None:
    """Format 1 to 2, in the transaction that is open: a crash leaves the one or the other."""
    rows = connection.execute("SELECT * FROM item").fetchall()
    try:
        checked = [(*row, row_crc(*row)) for row in rows]
    except NOT_A_ROW as error:
        raise _corrupted(path, f"has entries that are none: {error}") from error
    connection.execute("ALTER TABLE item RENAME TO item_v1")
    connection.execute(_ITEM)
    connection.executemany(_put(1), checked)
    connection.execute("DROP TABLE item_v1")
    _put_first_digest(connection)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _put_first_digest(connection: sqlite3.Connection) -> None:
    crcs = [crc for (crc,) in connection.execute("SELECT crc FROM item")]
    crcs += [lease_crc(*lease) for lease in connection.execute("SELECT id, ttl_ms FROM lease")]
    counters = dict(connection.execute("SELECT name, value FROM counter"))
    # A real file outlives its process and every seed: its name is never a simulated one.
    identity = int.from_bytes(SYSTEM_CHANCE.randbytes(8)) >> (64 - _IDENTITY_BITS)
    digest = Tally(0, 0).plus(crcs).digest(revision=counters["revision"], lease=counters["lease"], identity=identity)
    connection.execute("INSERT INTO counter VALUES ('identity', ?), ('digest', ?)", (identity, digest))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
