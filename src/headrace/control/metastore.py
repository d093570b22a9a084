"""The metastore port: a small strongly consistent key-value store, shaped like etcd.

The contract, which `tests/contracts/metastore` holds every backend to:

- Keys are text, values are bytes. Keys are ordered by code point, which is also the order of their UTF-8.
- The store has one revision, raised by one by each transaction that writes; every key written in it gets that
  `mod_revision`. A key's `version` counts its writes since it was created, `create_revision` is where that was.
- `txn` is atomic and durable when it returns. Reads are linearizable: they see everything acknowledged before
  they began, and nothing that could still be lost.
- A lease that is neither kept alive nor revoked runs out, and takes the keys put under it along.
- `watch` gives every change of a key range once, in revision order, from a revision the caller names.

This module knows nothing of topics, brokers or any backend.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NewType, Protocol

import msgspec

LeaseId = NewType("LeaseId", int)

NO_LEASE: Final = LeaseId(0)


class KeyRange(msgspec.Struct, frozen=True, gc=False):
    """Keys from `start` up to, not including, `end`. Build it with `prefix`, `only` or by hand."""

    start: str
    end: str

    def __contains__(self, key: str) -> bool:
        return self.start <= key < self.end


def prefix(text: str) -> KeyRange:
    """Every key that begins with `text`."""
    if not text:
        return KeyRange("", chr(0x10FFFF))
    return KeyRange(text, text[:-1] + chr(ord(text[-1]) + 1))


def only(key: str) -> KeyRange:
    """This one key: nothing sorts between a key and the same key with a NUL behind it."""
    return KeyRange(key, key + "\0")


class KeyValue(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: LeaseId = NO_LEASE


class Target(Enum):
    """What of a key is compared. An absent key has zero for all of them, and no value at all."""

    VALUE = "value"
    MOD_REVISION = "mod_revision"
    CREATE_REVISION = "create_revision"
    VERSION = "version"


class Relation(Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    GREATER = ">"
    LESS = "<"


class Compare(msgspec.Struct, frozen=True, gc=False):
    """A condition on one key. A comparison of the value of an absent key never holds."""

    key: str
    target: Target
    relation: Relation
    operand: int | bytes


def exists(key: str) -> Compare:
    return Compare(key, Target.VERSION, Relation.GREATER, 0)


def absent(key: str) -> Compare:
    return Compare(key, Target.VERSION, Relation.EQUAL, 0)


def value_is(key: str, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, Relation.EQUAL, value)


def unchanged(key: str, mod_revision: int) -> Compare:
    """The key is as it was at `mod_revision`; zero means that it was absent, and still is."""
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, mod_revision)


class Put(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    lease: LeaseId = NO_LEASE


class Delete(msgspec.Struct, frozen=True, gc=False):
    keys: KeyRange


class Read(msgspec.Struct, frozen=True, gc=False):
    keys: KeyRange
    limit: int | None = None
    is_descending: bool = False


Op = Put | Delete | Read


class PutResult(msgspec.Struct, frozen=True, gc=False):
    """Nothing to say: the revision of the transaction is the key's."""


class DeleteResult(msgspec.Struct, frozen=True, gc=False):
    deleted_count: int


class RangeResult(msgspec.Struct, frozen=True, gc=False):
    """What a range held at `revision`; `has_more` when a limit cut it short."""

    items: tuple[KeyValue, ...]
    revision: int
    has_more: bool = False


OpResult = PutResult | DeleteResult | RangeResult


class Txn(msgspec.Struct, frozen=True, gc=False):
    """A transaction as a value, for code that decides without doing."""

    compares: tuple[Compare, ...] = ()
    then_ops: tuple[Op, ...] = ()
    else_ops: tuple[Op, ...] = ()


class TxnResult(msgspec.Struct, frozen=True, gc=False):
    """`results` are those of the branch taken, in the order of its operations."""

    is_success: bool
    revision: int
    results: tuple[OpResult, ...]


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One key changed at `revision`; `value` is None when it was deleted, by hand or with its lease."""

    key: str
    value: bytes | None
    revision: int


class Metastore(Protocol):
    @property
    def txn_ops_max(self) -> int:
        """Most compares, and most operations in either branch, of one transaction."""
        ...

    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False) -> RangeResult: ...

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        """Run one branch atomically; returns when what it wrote is durable.

        Raises `TooLarge` past `txn_ops_max`, `Invalid` when a branch writes one key twice, `LeaseNotFound` for a
        put under a lease that is gone. A cancelled call may or may not have taken effect.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> LeaseId: ...

    async def keep_alive(self, lease: LeaseId) -> None:
        """Start the lease's time anew. Raises `LeaseNotFound` when it has run out already."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None:
        """Delete the lease and every key under it, in one revision. Raises `LeaseNotFound`."""
        ...

    def watch(self, keys: KeyRange, *, from_revision: int | None = None) -> AsyncIterator[WatchEvent]:
        """Changes at `from_revision` and later; without it, those after this call.

        One revision may hold several events: who resumes, resumes at the revision of the last event seen, and
        takes its events again. Raises `RevisionCompacted` when the past asked for is no longer kept, also in the
        middle for a watcher that falls too far behind: read the range anew and watch from the revision after it.
        """
        ...

    async def close(self) -> None: ...


def chunks_of(ops: Iterable[Op], size: int) -> Iterator[tuple[Op, ...]]:
    chunk: list[Op] = []
    for op in ops:
        chunk.append(op)
        if len(chunk) == size:
            yield tuple(chunk)
            chunk = []
    if chunk:
        yield tuple(chunk)


async def write_in_chunks(store: Metastore, ops: Iterable[Op], *, guards: Sequence[Compare] = ()) -> bool:
    """Write any number of operations, a transaction's worth at a time, each under `guards`.

    Not atomic: a crash or a failed guard leaves the chunks before it written. Only for writes that can be done
    again from the start and mean nothing until the last. Returns False where a guard stopped it.
    """
    for chunk in chunks_of(ops, store.txn_ops_max):
        result = await store.txn(guards, chunk)
        if not result.is_success:
            return False
    return True
