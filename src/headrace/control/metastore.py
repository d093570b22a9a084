"""The metastore port: a small strongly consistent key-value store, shaped like etcd.

The contract, which `tests/contracts/metastore` holds every backend to:

- Keys are text, values are bytes. Keys are ordered by code point, which is also the order of their UTF-8.
- The store has one revision, raised by one by each transaction that writes; every key written in it gets that
  `mod_revision`. A key's `version` counts its writes since it was created, `create_revision` is where that was.
- `txn` is atomic and durable when it returns. Where a reply was lost it raises `OutcomeUnknown`: the transaction has taken
  effect, or not, or will. Whoever hears that reads what is true and decides anew.
- Reads, transactions of reads among them, are linearizable: they see everything acknowledged before they began, and nothing
  that could still be lost.
- A lease that is neither kept alive nor revoked runs out, and takes the keys put under it along.
- `watch` gives every change of a key range once, in revision order, whole revisions at a time, from one the caller names.

This module knows nothing of topics, brokers or any backend.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NewType, Protocol

import msgspec

from headrace.errors import Invalid, TooLarge

LeaseId = NewType("LeaseId", int)

NO_LEASE: Final = LeaseId(0)

LEASE_TTL_MS_MAX: Final = 24 * 3600 * 1000
"""A lease longer than a day is a key that should not have a lease."""

PAGE_KEYS: Final = 1000
"""Of one page: with values of a kilobyte a quarter of what a gRPC message holds by default."""

_PART_BYTES: Final = 32
"""Of a compare or an operation beside its keys and values: about."""


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


class TxnLimits(msgspec.Struct, frozen=True, gc=False):
    """What one transaction may hold."""

    ops_max: int
    """Compares, and operations in either branch."""
    bytes_max: int
    """Of the keys and values in all of them, as `size_of` counts."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    id: LeaseId
    ttl_ms: int
    """The time it was granted, at least what was asked for: some stores count in whole seconds, and from a least time on."""


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One key changed at `revision`; `value` is None when it was deleted, by hand or with its lease."""

    key: str
    value: bytes | None
    revision: int


class Changes(msgspec.Struct, frozen=True, gc=False):
    """What happened up to `revision` and was not told before: whole revisions, in order. Without events: nothing did."""

    revision: int
    events: tuple[WatchEvent, ...]


class Metastore(Protocol):
    @property
    def txn_limits(self) -> TxnLimits: ...

    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False) -> RangeResult:
        """For ranges that are small, or limited: an answer has to fit in a message. See `pages`."""
        ...

    def pages(self, keys: KeyRange, *, limit: int = PAGE_KEYS) -> AsyncIterator[RangeResult]:
        """A range of any size, in order, as it was at one revision: that of every page. At least one, which may be empty.

        Raises `RevisionCompacted` for a reader so slow that the revision is no longer kept: begin anew.
        """
        ...

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        """Run one branch atomically; returns when what it wrote is durable.

        Raises `TooLarge` past `txn_limits`, `Invalid` when a branch writes one key twice, `LeaseNotFound` for a
        put under a lease that is gone, `OutcomeUnknown`. A cancelled call may or may not have taken effect.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> Lease: ...

    async def keep_alive(self, lease: LeaseId) -> int:
        """Start the lease's time anew; how long that is. Raises `LeaseNotFound` when it has run out already."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None:
        """Delete the lease and every key under it, in one revision. Raises `LeaseNotFound`."""
        ...

    def watch(self, keys: KeyRange, *, from_revision: int, without: str = "") -> AsyncIterator[Changes]:
        """Changes at `from_revision` and later, but for keys that have `without` in them.

        Who resumes, resumes at the revision behind the last `Changes`. Those come also when nothing has happened, or a quiet
        watcher would be overtaken by the past that is forgotten. Raises `RevisionCompacted` when the past asked for is no
        longer kept, also in the middle for a watcher that falls too far behind: read the range anew and watch from the
        revision after it.
        """
        ...

    async def close(self) -> None: ...


def size_of(part: Compare | Op) -> int:
    """Of a transaction's part, about as it is counted on the wire."""
    match part:
        case Put():
            return _PART_BYTES + len(part.key) + len(part.value)
        case Compare():
            return _PART_BYTES + len(part.key) + (len(part.operand) if isinstance(part.operand, bytes) else 0)
        case Delete() | Read():
            return _PART_BYTES + len(part.keys.start) + len(part.keys.end)


def check_size(
    limits: TxnLimits, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()
) -> None:
    """Raises `TooLarge`."""
    longest = max(len(compares), len(then_ops), len(else_ops))
    if longest > limits.ops_max:
        raise TooLarge(f"transaction of {longest} operations, limit {limits.ops_max}")
    size = sum(map(size_of, compares)) + sum(map(size_of, then_ops)) + sum(map(size_of, else_ops))
    if size > limits.bytes_max:
        raise TooLarge(f"transaction of {size} bytes, limit {limits.bytes_max}")


def check_lease_time(ttl_ms: int) -> None:
    """Raises `Invalid`."""
    if not 0 < ttl_ms <= LEASE_TTL_MS_MAX:
        raise Invalid(f"lease of {ttl_ms} ms, must be 1 to {LEASE_TTL_MS_MAX}")


async def read_all(store: Metastore, keys: KeyRange) -> RangeResult:
    """A range of any size, as it was at one revision."""
    items: list[KeyValue] = []
    revision = 0
    async for page in store.pages(keys):
        items += page.items
        revision = page.revision
    return RangeResult(tuple(items), revision)


def told(events: Sequence[WatchEvent], keys: KeyRange, without: str) -> tuple[WatchEvent, ...]:
    """Those of `events` that a watcher of `keys` but for `without` hears of."""
    return tuple([each for each in events if each.key in keys and not (without and without in each.key)])


def chunks_of(ops: Iterable[Op], limits: TxnLimits, *, guards: Sequence[Compare] = ()) -> Iterator[tuple[Op, ...]]:
    """In as few transactions' worth as hold them in their order, under the same guards."""
    reserved = sum(map(size_of, guards))
    chunk: list[Op] = []
    size = reserved
    for op in ops:
        if chunk and (len(chunk) == limits.ops_max or size + size_of(op) > limits.bytes_max):
            yield tuple(chunk)
            chunk, size = [], reserved
        chunk.append(op)
        size += size_of(op)
    if chunk:
        yield tuple(chunk)


async def write_in_chunks(store: Metastore, ops: Iterable[Op], *, guards: Sequence[Compare] = ()) -> bool:
    """Write any number of operations, a transaction's worth at a time, each under `guards`.

    Not atomic: a crash or a failed guard leaves the chunks before it written. Only for writes that can be done
    again from the start and mean nothing until the last. Returns False where a guard stopped it.
    """
    for chunk in chunks_of(ops, store.txn_limits, guards=guards):
        result = await store.txn(guards, chunk)
        if not result.is_success:
            return False
    return True
