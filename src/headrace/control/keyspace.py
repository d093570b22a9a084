"""The state of a metastore in memory, and what a command does to it: pure, and the same for every backend we host.

A `Keyspace` is what is committed. A `Draft` evaluates commands one after another on top of it without touching
it; once a driver has made the draft durable, `Keyspace.merge` makes it true. Whoever reads the keyspace therefore
never sees what a crash could take back. Knows no clock, no disk and no event loop.
"""

from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from headrace.control.metastore import (
    NO_LEASE,
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    LeaseId,
    Op,
    OpResult,
    Put,
    PutResult,
    RangeResult,
    Read,
    Relation,
    Target,
    TxnResult,
    WatchEvent,
)
from headrace.errors import Invalid, LeaseNotFound

Ordered = TypeVar("Ordered", int, bytes)
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that can be left and taken up again, and what comes of it."""

STEP_SIZE: Final = 128
"""Compares or operations of a step, a microsecond or two each."""

_PUT_DONE: Final = PutResult()
_SINGLE_INSERTS_MAX: Final = 16
"""Up to here keys are placed one by one; past it, sorting the nearly sorted whole is cheaper."""
_UNPLACED_MAX: Final = 4096
"""More would make the next range a slow one."""


class Keyspace:
    """What is committed: keys in order, leases and what hangs on them."""

    def __init__(self, items: Iterable[KeyValue], *, revision: int, leases: dict[LeaseId, int]) -> None:
        self.revision = revision
        self._items = {item.key: item for item in items}
        self._keys = sorted(self._items)
        self._unplaced: dict[str, bool] = {}
        """Keys that have come or gone since `_keys` was put in order, and whether they were there then."""
        self._leases = dict(leases)
        self._leased: dict[LeaseId, set[str]] = {lease: set() for lease in leases}
        for item in self._items.values():
            if item.lease in self._leased:
                self._leased[item.lease].add(item.key)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def keys_in(self, keys: KeyRange) -> list[str]:
        self._put_in_order()
        return self._keys[bisect_left(self._keys, keys.start) : bisect_left(self._keys, keys.end)]

    def range(self, keys: KeyRange, *, limit: int | None, is_descending: bool) -> RangeResult:
        return _range_result(self._items, self.keys_in(keys), limit, is_descending, self.revision)

    def lease_ttl_ms(self, lease: LeaseId) -> int | None:
        return self._leases.get(lease)

    def leases(self) -> dict[LeaseId, int]:
        """Each lease and its time to live."""
        return dict(self._leases)

    def leased_keys(self, lease: LeaseId) -> frozenset[str]:
        return frozenset(self._leased.get(lease, ()))

    def merge(self, draft: "Draft") -> None:
        assert draft.base_revision == self.revision, "drafts are merged in the order they were made"
        self._leases.update(draft.leases_granted)
        for lease in draft.leases_granted:
            self._leased.setdefault(lease, set())
        for key, item in draft.changes.items():
            old = self._items.get(key)
            if old is not None and old.lease in self._leased:
                self._leased[old.lease].discard(key)
            if (old is None) != (item is None):
                self._unplaced.setdefault(key, old is not None)
            if item is None:
                self._items.pop(key, None)
                continue
            self._items[key] = item
            if item.lease in self._leased:
                self._leased[item.lease].add(key)
        for lease in draft.leases_revoked:
            self._leases.pop(lease, None)
            self._leased.pop(lease, None)
        if len(self._unplaced) > _UNPLACED_MAX:
            self._put_in_order()
        self.revision = draft.revision

    def _put_in_order(self) -> None:
        """Left to whoever asks for a range, since it walks over all keys, and most commits are followed by none."""
        unplaced, self._unplaced = self._unplaced, {}
        self._forget([key for key, was_there in unplaced.items() if was_there and key not in self._items])
        self._place([key for key, was_there in unplaced.items() if not was_there and key in self._items])

    def _place(self, added: list[str]) -> None:
        if len(added) <= _SINGLE_INSERTS_MAX:
            for key in added:
                insort(self._keys, key)
        else:
            self._keys.extend(added)
            self._keys.sort()

    def _forget(self, removed: list[str]) -> None:
        if len(removed) <= _SINGLE_INSERTS_MAX:
            for key in removed:
                del self._keys[bisect_left(self._keys, key)]
        else:
            gone = set(removed)
            self._keys = [key for key in self._keys if key not in gone]

    def check_invariants(self) -> None:
        assert self.keys_in(KeyRange("", chr(0x10FFFF))) == sorted(self._items)
        assert all(item.mod_revision <= self.revision for item in self._items.values())
        assert all(1 <= item.create_revision <= item.mod_revision for item in self._items.values())
        attached = {(item.lease, item.key) for item in self._items.values() if item.lease != NO_LEASE}
        assert attached == {(lease, key) for lease, keys in self._leased.items() for key in keys}
        assert self._leased.keys() == self._leases.keys()


class Draft:
    """Commands evaluated on a keyspace and not yet part of it.

    `changes` holds the final state of each key touched (None: deleted); `events` every change in order.
    """

    def __init__(self, base: Keyspace) -> None:
        self._base = base
        self.base_revision = base.revision
        self.revision = base.revision
        self.changes: dict[str, KeyValue | None] = {}
        self.events: list[WatchEvent] = []
        self.leases_granted: dict[LeaseId, int] = {}
        self.leases_revoked: set[LeaseId] = set()

    @property
    def is_empty(self) -> bool:
        return not (self.changes or self.leases_granted or self.leases_revoked)

    def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op]) -> TxnResult:
        steps = self.txn_in_steps(compares, then_ops, else_ops)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: TxnResult = end.value
                return result

    def txn_in_steps(
        self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op]
    ) -> Steps[TxnResult]:
        """The same, a step at a time: a driver may do something else in between, but nothing to this draft or its base."""
        is_success = True
        for number, compare in enumerate(compares, 1):
            if not self._holds(compare):
                is_success = False
                break
            if not number % STEP_SIZE:
                yield
        ops = then_ops if is_success else else_ops
        yield from self._check_ops(ops)
        before = len(self.events)
        # Every write of the transaction gets the next revision; whether there is one shows only at the end, since
        # deleting what is not there writes nothing.
        revision = self.revision + 1
        results: list[OpResult] = []
        for number, op in enumerate(ops, 1):
            results.append(self._run(op, revision))
            if not number % STEP_SIZE:
                yield
        if len(self.events) > before:
            self.revision = revision
        return TxnResult(is_success, self.revision, tuple(results))

    def before(self, key: str) -> KeyValue | None:
        """What the draft found under a key, and would replace."""
        return self._base.get(key)

    def ttl_ms_of(self, lease: LeaseId) -> int:
        """Of a lease that the draft found or granted."""
        ttl_ms = self.leases_granted.get(lease, self._base.lease_ttl_ms(lease))
        assert ttl_ms is not None, "a lease that never was cannot be revoked"
        return ttl_ms

    def grant_lease(self, lease: LeaseId, ttl_ms: int) -> None:
        """`lease` was never granted before: ids are not used twice."""
        self.leases_granted[lease] = ttl_ms

    def revoke_lease(self, lease: LeaseId) -> None:
        self._check_lease(lease)
        touched = self._base.leased_keys(lease) | self.changes.keys()
        attached = sorted(key for key in touched if (item := self._get(key)) is not None and item.lease == lease)
        if attached:
            self.revision += 1
            for key in attached:
                self._remove(key, self.revision)
        self.leases_revoked.add(lease)

    def _run(self, op: Op, revision: int) -> OpResult:
        match op:
            case Put():
                self._put(op, revision)
                return _PUT_DONE
            case Delete():
                doomed = self._keys_in(op.keys)
                for key in doomed:
                    self._remove(key, revision)
                return DeleteResult(len(doomed))
            case Read():
                keys = self._keys_in(op.keys)
                found = {key: item for key in keys if (item := self._get(key)) is not None}
                return _range_result(found, keys, op.limit, op.is_descending, self.revision)

    def _put(self, op: Put, revision: int) -> None:
        old = self._get(op.key)
        if old is None:
            item = KeyValue(op.key, op.value, revision, revision, 1, op.lease)
        else:
            item = KeyValue(op.key, op.value, old.create_revision, revision, old.version + 1, op.lease)
        self.changes[op.key] = item
        self.events.append(WatchEvent(op.key, op.value, revision))

    def _remove(self, key: str, revision: int) -> None:
        self.changes[key] = None
        self.events.append(WatchEvent(key, None, revision))

    def _get(self, key: str) -> KeyValue | None:
        if key in self.changes:
            return self.changes[key]
        return self._base.get(key)

    def _keys_in(self, keys: KeyRange) -> list[str]:
        if _is_single(keys):
            # One key, and often thousands of such in one transaction: not worth a look at every change.
            return [keys.start] if self._get(keys.start) is not None else []
        if not self.changes:
            return self._base.keys_in(keys)
        found = {key for key in self._base.keys_in(keys) if self.changes.get(key, self) is not None}
        found.update(key for key, item in self.changes.items() if item is not None and key in keys)
        return sorted(found)

    def _check_ops(self, ops: Sequence[Op]) -> Steps[None]:
        """Before anything is written: a transaction that is refused must leave nothing in the draft."""
        keys: set[str] = set()
        leases: set[LeaseId] = set()
        deletes: list[KeyRange] = []
        for number, op in enumerate(ops, 1):
            if isinstance(op, Put):
                if op.key in keys:
                    raise Invalid(f"transaction writes {op.key!r} twice")
                keys.add(op.key)
                leases.add(op.lease)
            elif isinstance(op, Delete):
                deletes.append(op.keys)
            if not number % STEP_SIZE:
                yield
        for number, doomed in enumerate(deletes, 1):
            candidates = (doomed.start,) if _is_single(doomed) else keys
            for key in candidates:
                if key in doomed and key in keys:
                    raise Invalid(f"transaction both puts and deletes {key!r}")
            if not number % STEP_SIZE:
                yield
        for lease in leases:
            if lease != NO_LEASE:
                self._check_lease(lease)

    def _check_lease(self, lease: LeaseId) -> None:
        is_known = lease in self.leases_granted or self._base.lease_ttl_ms(lease) is not None
        if not is_known or lease in self.leases_revoked:
            raise LeaseNotFound(f"lease {lease} has run out or never was")

    def _holds(self, compare: Compare) -> bool:
        item = self._get(compare.key)
        actual: int | bytes
        match compare.target:
            case Target.VALUE:
                if item is None:
                    return False
                actual = item.value
            case Target.MOD_REVISION:
                actual = 0 if item is None else item.mod_revision
            case Target.CREATE_REVISION:
                actual = 0 if item is None else item.create_revision
            case Target.VERSION:
                actual = 0 if item is None else item.version
        if isinstance(actual, int) and isinstance(compare.operand, int):
            return _relate(actual, compare.relation, compare.operand)
        if isinstance(actual, bytes) and isinstance(compare.operand, bytes):
            return _relate(actual, compare.relation, compare.operand)
        raise Invalid(f"compare of {compare.key!r}: {compare.target.value} is not {compare.operand!r}")


def _is_single(keys: KeyRange) -> bool:
    return keys.end == keys.start + "\0"


def _relate(actual: Ordered, relation: Relation, operand: Ordered) -> bool:
    match relation:
        case Relation.EQUAL:
            return actual == operand
        case Relation.NOT_EQUAL:
            return actual != operand
        case Relation.GREATER:
            return actual > operand
        case Relation.LESS:
            return actual < operand


def _range_result(
    items: dict[str, KeyValue], keys: list[str], limit: int | None, is_descending: bool, revision: int
) -> RangeResult:
    if is_descending:
        keys = keys[::-1]
    has_more = limit is not None and len(keys) > limit
    return RangeResult(tuple([items[key] for key in keys[:limit]]), revision, has_more)
