"""The copy of committed offsets in the metastore: complete in the end, never in anybody's way."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.broker import offset_projection
from headrace.broker.offset_projection import OffsetProjection
from headrace.broker.offset_records import CommittedOffset
from headrace.control import values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Delete, Metastore, Op, Put, TxnLimits, exists
from headrace.errors import Unavailable


class FakeStore:
    """Remembers transactions; fails the first `failures` of them."""

    txn_limits = TxnLimits(ops_max=3, bytes_max=1_000_000)

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.refused = 0
        """Transactions whose compares do not hold."""
        self.written: dict[str, bytes | None] = {}
        self.sizes: list[int] = []

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Any:  # Any: as much of a result as is read
        await turn_of_the_loop()
        if self.failures:
            self.failures -= 1
            raise Unavailable("not now")
        if self.refused:
            self.refused -= 1
            return SimpleNamespace(is_success=False)
        self.sizes.append(len(ops))
        for op in ops:
            if isinstance(op, Put):
                self.written[op.key] = op.value
            elif isinstance(op, Delete):
                self.written[op.keys.start] = None
        return SimpleNamespace(is_success=True)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_projection, "PAUSE_S", 0)


def projection(store: FakeStore) -> OffsetProjection:
    return OffsetProjection(cast(Metastore, store))


@pytest.mark.requirement("R3.28")
async def test_offsets_lie_at_the_path_of_the_seed() -> None:
    store = FakeStore()
    target = projection(store)
    target.note(0, ("g", "t", 4), CommittedOffset(offset=9, leader_epoch=2, metadata="note", commit_ms=5))
    await target.stop()
    value = store.written["/consumer_groups/g/offsets/t/4"]
    assert value is not None
    found = values.decode(pb.ConsumerOffset, value)
    assert (found.offset, found.metadata, found.leader_epoch, found.commit_ms) == (9, "note", 2, 5)


async def test_storm_of_commits_writes_each_key_once_in_full_transactions() -> None:
    store = FakeStore()
    target = projection(store)
    for number in range(1000):
        target.note(0, ("g", "t", number % 7), CommittedOffset(offset=number))
    await target.stop()
    assert store.sizes == [3, 3, 1]
    newest = {
        int(path.rpartition("/")[2]): values.decode(pb.ConsumerOffset, value or b"").offset
        for path, value in store.written.items()
    }
    assert newest == {number % 7: number for number in range(993, 1000)}


async def test_forgotten_offsets_are_deleted() -> None:
    store = FakeStore()
    target = projection(store)
    target.note(0, ("g", "t", 0), CommittedOffset(offset=1))
    target.note(0, ("g", "t", 0), None)
    await target.stop()
    assert store.written == {"/consumer_groups/g/offsets/t/0": None}


async def test_what_could_not_be_written_is_written_later() -> None:
    store = FakeStore(failures=1)
    target = projection(store)
    for number in range(5):
        target.note(0, ("g", "t", number), CommittedOffset(offset=number))
    async with asyncio.timeout(60):
        while len(store.written) < 5:
            await turn_of_the_loop()
    await target.stop()


async def test_what_a_deposed_coordinator_could_not_write_is_not_written_over_its_successors() -> None:
    """The partition changes hands while a transaction is on its way: it fails, and what is left is nobody's to write here."""
    store = FakeStore()
    led: list[Sequence[Compare] | None] = [(exists("/leader"),), None]
    target = OffsetProjection(cast(Metastore, store), lambda index: led.pop(0))
    store.refused = 1
    target.note(3, ("g", "t", 0), CommittedOffset(offset=1))
    await target.stop()
    assert store.written == {}
    await target.stop()
    assert store.written == {}
    assert led == []
