"""The coordinators: groups, their offsets, and transactions, over the internal topics they share.

What an earlier life wrote may be in an object store that is out of reach. So it is read in the background, and tried
again until it is there; meanwhile each coordinator tells its clients to wait, and the rest of the node serves.

Of several brokers each reads the partitions of these topics that it is given, and forgets those that it loses (`follow`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from headrace.broker.forwarding import Forwarding
from headrace.broker.groups.configs import GroupConfigs
from headrace.broker.groups.service import Groups
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.internal_topic import InternalTopic
from headrace.broker.offset_projection import Guard, OffsetProjection, no_guard
from headrace.broker.offsets import Offsets
from headrace.broker.peers.calls import Peers
from headrace.broker.produce import Produce
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.shared_topics import SharedTopics
from headrace.broker.topics import Topics
from headrace.broker.transactions.markers import Markers
from headrace.broker.transactions.participation import Participation
from headrace.broker.transactions.service import Transactions
from headrace.broker.transactions.settings import TransactionCoordinatorSettings
from headrace.clock import Clock
from headrace.control.metastore import Metastore
from headrace.errors import Fault, HeadraceError, Unavailable
from headrace.log.partition import PartitionLog
from headrace.telemetry.logging import get_logger
from headrace.telemetry.problems import Problems

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
HEAD_START_S: Final = 2.0
"""How long a start waits for the coordinators: with a store that answers, no client finds them loading."""
RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 4.0

log = get_logger(__name__)


@dataclass(slots=True)
class Coordinators:
    offsets: Offsets
    groups: Groups
    transactions: Transactions
    on_fault: Callable[[HeadraceError], None]
    """Told of what keeps them from loading for good, once `start` has returned."""
    participation: Participation
    markers: Markers
    forwarding: Forwarding
    _loading: asyncio.Task[None] | None = field(default=None)
    _given: dict[tuple[str, int], asyncio.Task[None]] = field(default_factory=dict)
    """Partitions that are being read, of a broker that is one of several."""

    async def start(self) -> None:
        """Begin to load; returns when that is done or takes long, and raises what will not pass."""
        self._loading = asyncio.ensure_future(self._load())
        done, _ = await asyncio.wait({self._loading}, timeout=HEAD_START_S)
        if done:
            self._loading.result()
        else:
            log.warning("started before groups and transactions are loaded")
            self._loading.add_done_callback(self._loaded)

    async def _load(self) -> None:
        # Offsets first: the markers of transactions decide some of them.
        await _until_loaded("groups", self.groups.load)
        await _until_loaded("transactions", self.transactions.load)

    def follow(self, topics: SharedTopics, peers: Peers) -> None:
        """As one of several: coordinate whatever this broker is given, and ask others for the rest."""
        topics.on_led.append(self._given_one)
        topics.on_resigned.append(self._lost_one)
        self.markers.peers = self.participation.peers = self.forwarding.peers = peers

    def _given_one(self, partition: PartitionLog) -> None:
        load = {OFFSETS_TOPIC: self.groups.load, TRANSACTIONS_TOPIC: self.transactions.load}.get(partition.topic_name)
        if load is None:
            return
        place = (partition.topic_name, partition.index)
        self._stop_reading(place)
        self._given[place] = asyncio.ensure_future(_until_loaded(f"{place[0]}-{place[1]}", partial(load, place[1])))
        self._given[place].add_done_callback(self._loaded)

    def _lost_one(self, partition: PartitionLog) -> None:
        place = (partition.topic_name, partition.index)
        if partition.topic_name == OFFSETS_TOPIC:
            self._stop_reading(place)
            self.groups.unload(partition.index)
        elif partition.topic_name == TRANSACTIONS_TOPIC:
            self._stop_reading(place)
            self.transactions.unload(partition.index)

    def _stop_reading(self, place: tuple[str, int]) -> None:
        reading = self._given.pop(place, None)
        if reading is not None:
            reading.cancel()

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        error = None if loading.cancelled() else loading.exception()
        if error is None:
            return
        if isinstance(error, HeadraceError):
            log.error("groups and transactions cannot be loaded", reason=str(error))
            self.on_fault(error)
        else:
            log.error("groups and transactions cannot be loaded", exc_info=error)
            self.on_fault(Fault(f"unexpected {error!r}"))

    @property
    def unloaded(self) -> tuple[str, ...]:
        """Who still tells clients to wait."""
        parts = (("groups", self.groups), ("transactions", self.transactions))
        return tuple(name for name, part in parts if not part.is_loaded)

    async def stop(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        for place in list(self._given):
            self._stop_reading(place)
        self.forwarding.stop()
        await self.transactions.stop()
        await self.groups.stop()


async def _until_loaded(what: str, load: Callable[[], Awaitable[None]]) -> None:
    pause_s = RETRY_S_MIN
    while True:
        try:
            return await load()
        except Unavailable as error:
            log.warning("not loaded; trying again", coordinator=what, reason=str(error), pause_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, RETRY_S_MAX)


def build_coordinators(
    *,
    topics: Topics,
    produce: Produce,
    producer_ids: ProducerIds,
    metastore: Metastore,
    clock: Clock,
    group_settings: GroupSettings,
    transaction_settings: TransactionCoordinatorSettings,
    on_fault: Callable[[HeadraceError], None],
    problems: Problems,
    guard: Guard = no_guard,
) -> Coordinators:
    offsets_log = InternalTopic(
        topics, produce, problems, name=OFFSETS_TOPIC, partitions=group_settings.offsets_topic_partitions
    )
    transactions_log = InternalTopic(
        topics, produce, problems, name=TRANSACTIONS_TOPIC, partitions=transaction_settings.topic_partitions
    )
    offsets = Offsets(offsets_log, topics, OffsetProjection(metastore, guard), clock)
    markers = Markers(topics, produce, offsets, clock, offsets_topic=OFFSETS_TOPIC)
    transactions = Transactions(
        transactions_log, markers, producer_ids, clock, transaction_settings, offsets_log=offsets_log
    )
    participation = Participation(transactions, topics)
    produce.check_transaction = participation.check_append
    produce.on_marker = participation.ended
    return Coordinators(
        offsets=offsets,
        groups=Groups(offsets_log, offsets, topics, clock, group_settings, GroupConfigs(metastore, group_settings)),
        transactions=transactions,
        participation=participation,
        markers=markers,
        forwarding=Forwarding(topics, produce, offsets),
        on_fault=on_fault,
    )
