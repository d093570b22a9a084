"""The coordinators: groups, their offsets, and transactions, over the internal topics they share.

What an earlier life wrote may be in an object store that is out of reach. So it is read in the background, and tried
again until it is there; meanwhile each coordinator tells its clients to wait, and the rest of the node serves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.broker.groups.configs import GroupConfigs
from headrace.broker.groups.service import Groups
from headrace.broker.groups.settings import GroupSettings
from headrace.broker.internal_topic import InternalTopic
from headrace.broker.offset_projection import OffsetProjection
from headrace.broker.offsets import Offsets
from headrace.broker.produce import Produce
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.topics import Topics
from headrace.broker.transactions.markers import Markers
from headrace.broker.transactions.service import Transactions
from headrace.broker.transactions.settings import TransactionCoordinatorSettings
from headrace.clock import Clock
from headrace.control.metastore import Metastore
from headrace.errors import Fault, HeadraceError, Unavailable
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
    _loading: asyncio.Task[None] | None = field(default=None)

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

    def start_groups(self) -> None:
        """In a cluster of several, when this broker has been given the memory of groups: begin to load it, and return at once."""
        self._loading = asyncio.ensure_future(_until_loaded("groups", self.groups.load))
        self._loading.add_done_callback(self._loaded)

    @property
    def is_group_topic_led(self) -> bool:
        """Whether the memory of groups is there, and this broker's."""
        return self.groups.is_home

    @property
    def is_started(self) -> bool:
        return self._loading is not None

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
) -> Coordinators:
    offsets_log = InternalTopic(
        topics, produce, problems, name=OFFSETS_TOPIC, partitions=group_settings.offsets_topic_partitions
    )
    transactions_log = InternalTopic(
        topics, produce, problems, name=TRANSACTIONS_TOPIC, partitions=transaction_settings.topic_partitions
    )
    offsets = Offsets(offsets_log, topics, OffsetProjection(metastore), clock)
    markers = Markers(topics, produce, offsets, clock, offsets_topic=OFFSETS_TOPIC)
    transactions = Transactions(
        transactions_log, markers, producer_ids, clock, transaction_settings, offsets_log=offsets_log
    )
    produce.check_transaction = transactions.check_append
    return Coordinators(
        offsets=offsets,
        groups=Groups(offsets_log, offsets, topics, clock, group_settings, GroupConfigs(metastore, group_settings)),
        transactions=transactions,
        on_fault=on_fault,
    )
