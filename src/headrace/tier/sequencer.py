"""Gives commits their numbers, in the active controller: the one place where all brokers' commits meet (R3.45).

Numbers have no gaps, so each commit changes the same counter. Brokers that raced for it would mostly lose: ten of them at fifty
commits a second gave up hundreds. Here they wait for each other: whatever has come while a transaction was under way goes into the
next one together.

A transaction that fails because of one commit is done again with each alone. Whoever was refused, or hears nothing, reads in the metastore what
became of its commit: every commit compares what it relies on, so that none takes effect twice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, KeyValue, Metastore, RangeResult, TxnResult
from headrace.errors import Concurrent, HeadraceError, NotReady, OutcomeUnknown, Overloaded, StaleEpoch
from headrace.telemetry.logging import get_logger
from headrace.tier import plans
from headrace.tier.plans import Counted, Numbered

_WAITING_MAX: Final = 4096
"""Commits that wait at once: brokers have a few under way each."""
_ATTEMPTS_MAX: Final = 8

log = get_logger(__name__)


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A commit that took effect: its number, and the revision of every entry it wrote."""

    number: int
    revision: int


class _Waiting(msgspec.Struct, frozen=True):
    wanted: Numbered
    done: asyncio.Future[Committed]


class Sequencer:
    def __init__(self, store: Metastore, guard: Callable[[], Compare], *, on_lost: Callable[[], None]) -> None:
        """`guard` is compared by every transaction, and raises `NotReady` where this controller is not active; `on_lost` hears that it
        is not any more."""
        self._store = store
        self._guard = guard
        self._on_lost = on_lost
        self._waiting: deque[_Waiting] = deque()
        self._has_come = asyncio.Event()
        self._counted: Counted | None = None
        self.transactions_total = 0

    async def commit(self, wanted: Numbered) -> Committed:
        """Raises `NotReady` where another controller is active, `Concurrent` when what the commit relies on has changed, `StaleEpoch` when
        a newer incarnation of the broker has registered, `OutcomeUnknown`."""
        self._guard()
        if len(self._waiting) >= _WAITING_MAX:
            raise Overloaded(f"{_WAITING_MAX} commits wait already")
        waiting = _Waiting(wanted, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._has_come.set()
        return await waiting.done

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            while self._waiting:
                # Whoever has gone meanwhile (its call timed out, its connection broke) wants nothing any more.
                found = [each for each in self._waiting if not each.done.done()]
                self._waiting.clear()
                await self._commit_all(found)

    async def _commit_all(self, found: Sequence[_Waiting]) -> None:
        start = 0
        while start < len(found):
            try:
                start += await self._commit_some(found[start:])
            except HeadraceError as error:
                _fail(found[start:], error)
                return
            except BaseException:
                _fail(found[start:], OutcomeUnknown("this controller stops"))
                raise

    async def _commit_some(self, found: Sequence[_Waiting]) -> int:
        """As many as one transaction holds; how many have been answered."""
        for _ in range(_ATTEMPTS_MAX):
            counted = self._counted or await self._read_counter()
            guard = self._guard()
            share = plans.together([each.wanted for each in found], counted, guard, self._store.txn_limits)
            result = await self._write(share)
            if result.is_success:
                self._counted = Counted(counted.number + share.count, result.revision)
                for index, each in enumerate(found[: share.count]):
                    _answer(each, Committed(counted.number + index, result.revision))
                return share.count
            seen = self._seen(result, guard)
            if self._counter_in(seen).revision != counted.revision:
                self._counted = self._counter_in(seen)
                continue
            if share.count == 1:
                _fail(found[:1], _reason(found[0].wanted, seen))
                return 1
            for each in found[: share.count]:
                await self._commit_some([each])
            return share.count
        raise Concurrent(f"{_ATTEMPTS_MAX} times somebody else has given out commit numbers")

    async def _write(self, share: plans.Together) -> TxnResult:
        self.transactions_total += 1
        try:
            return await self._store.txn(share.txn.compares, share.txn.then_ops, share.txn.else_ops)
        except BaseException:
            self._counted = None  # It may have taken effect.
            raise

    def _seen(self, result: TxnResult, guard: Compare) -> dict[str, KeyValue]:
        found = {item.key: item for read in result.results if isinstance(read, RangeResult) for item in read.items}
        holder = found.get(guard.key)
        if holder is None or holder.mod_revision != guard.operand:
            self._on_lost()
            raise NotReady("this controller is no longer active")
        return found

    async def _read_counter(self) -> Counted:
        item = await self._store.get(keys.NEXT_COMMIT_NUMBER)
        self._counted = _counted(item)
        return self._counted

    def _counter_in(self, found: dict[str, KeyValue]) -> Counted:
        return _counted(found.get(keys.NEXT_COMMIT_NUMBER))


def _counted(item: KeyValue | None) -> Counted:
    if item is None:
        return Counted(1, 0)
    return Counted(values.decode(pb.Counter, item.value).next, item.mod_revision)


def _reason(wanted: Numbered, seen: dict[str, KeyValue]) -> HeadraceError:
    identity = seen.get(wanted.fence.key)
    if identity is None or identity.mod_revision != wanted.fence_revision:
        return StaleEpoch(f"a newer {wanted.broker_id!r} has registered; this one must stop")
    return Concurrent("a partition changed its leader, or its topic is gone, while records were committed")


def _answer(waiting: _Waiting, committed: Committed) -> None:
    if not waiting.done.done():
        waiting.done.set_result(committed)


def _fail(waiting: Sequence[_Waiting], error: HeadraceError) -> None:
    for each in waiting:
        if not each.done.done():
            each.done.set_exception(error)


def encode_commit(wanted: Numbered) -> bytes:
    return msgspec.msgpack.encode(wanted)


def decode_commit(data: bytes) -> Numbered:
    return msgspec.msgpack.decode(data, type=Numbered)
