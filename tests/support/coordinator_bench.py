"""Groups, offsets and transactions over a log in memory, with a clock in the test's hands."""

from collections.abc import AsyncIterator
from typing import Any, cast

from tests.support.fake_log import FakeProduce, FakeTopics, replayed
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.broker.forwarding import Forwarding
from headrace.broker.groups.configs import GroupConfigs
from headrace.broker.groups.service import Groups
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.internal_topic import InternalTopic, ReplayedBatch
from headrace.broker.offset_projection import OffsetProjection
from headrace.broker.offsets import CommittedOffset, Offsets
from headrace.broker.transactions.markers import Markers
from headrace.broker.transactions.participation import Participation
from headrace.broker.transactions.service import Transactions
from headrace.broker.transactions.settings import TransactionCoordinatorSettings
from headrace.control.metastore import KeyRange, Metastore, RangeResult
from headrace.errors import HeadraceError
from headrace.telemetry.problems import Problems

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class NoProjection:
    def note(self, index: int, key: object, committed: object) -> None:
        pass

    def forget(self, index: int) -> None:
        pass

    async def stop(self) -> None:
        pass


class CountingIds:
    def __init__(self) -> None:
        self.last = 99

    async def take(self) -> int:
        self.last += 1
        return self.last


class Store:
    """What the internal topics are read back from. `failure` comes up after the first batch, as an outage would."""

    def __init__(self, failure: HeadraceError | None = None) -> None:
        self.failure = failure
        self.reads = 0

    async def replay(self, topics: FakeTopics, name: str) -> AsyncIterator[ReplayedBatch]:
        self.reads += 1
        for batch in replayed(topics, name) if topics.find(name) is not None else ():
            yield batch
            await turn_of_the_loop()
            if self.failure is not None:
                raise self.failure


class NoMetastore:
    """Nobody has set anything."""

    async def range(self, keys: KeyRange) -> RangeResult:
        return RangeResult(items=(), revision=1)


class CoordinatorBench:
    """All coordinators over a log in memory; `is_loaded`: as if they had read it."""

    def __init__(self, topics: FakeTopics | None = None, *, is_loaded: bool = True) -> None:
        self.topics = topics or FakeTopics(t=2)
        self.produce = FakeProduce()
        self.clock = ManualClock()
        self.problems = Problems()
        topics_, produce = cast(Any, self.topics), cast(Any, self.produce)
        self.offsets_log = InternalTopic(topics_, produce, self.problems, name=OFFSETS, partitions=4)
        self.transactions_log = InternalTopic(topics_, produce, self.problems, name=TRANSACTIONS, partitions=2)
        self.offsets_log.is_whole = self.transactions_log.is_whole = is_loaded
        self.offsets = Offsets(self.offsets_log, topics_, cast(OffsetProjection, NoProjection()), self.clock)
        settings = GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_minutes=1)
        configs = GroupConfigs(cast(Metastore, NoMetastore()), settings)
        self.groups = Groups(self.offsets_log, self.offsets, topics_, self.clock, settings, configs)
        self.markers = Markers(topics_, produce, self.offsets, self.clock, offsets_topic=OFFSETS)
        self.transactions = Transactions(
            self.transactions_log,
            self.markers,
            cast(Any, CountingIds()),
            self.clock,
            TransactionCoordinatorSettings(),
            offsets_log=self.offsets_log,
        )
        self.participation = Participation(self.transactions, topics_)
        self.forwarding = Forwarding(topics_, produce, self.offsets)

    def next_life(self, store: "Store") -> "CoordinatorBench":
        """After a restart: nothing is loaded, and what this one wrote is read from `store`. This one hears nothing more."""
        self.topics.on_removed.clear()
        again = CoordinatorBench(self.topics, is_loaded=False)
        again.offsets_log.replay = lambda index=None: store.replay(self.topics, OFFSETS)  # type: ignore[method-assign]
        again.transactions_log.replay = lambda index=None: store.replay(self.topics, TRANSACTIONS)  # type: ignore[method-assign]
        return again

    async def stop(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()

    async def settle(self) -> None:
        for _ in range(10):
            await turn_of_the_loop()

    async def commit(self, group: str = "g", offset: int = 5, **more: bool) -> None:
        await self.offsets.commit(group, {("t", 0): CommittedOffset(offset=offset)}, **more)

    def committed(self, group: str = "g") -> int | None:
        found = self.offsets.committed(group, "t", 0)
        return None if found is None else found.offset
