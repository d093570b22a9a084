"""Builds the coordinators: groups, their offsets, and transactions, over the internal topics they share."""

from dataclasses import dataclass

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

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


@dataclass(frozen=True, slots=True)
class Coordinators:
    offsets: Offsets
    groups: Groups
    transactions: Transactions

    async def load(self) -> None:
        """Bring back what an earlier life knew. Offsets first: the markers of transactions decide some of them."""
        await self.groups.load()
        await self.transactions.load()

    async def stop(self) -> None:
        await self.transactions.stop()
        await self.groups.stop()


def build_coordinators(
    *,
    topics: Topics,
    produce: Produce,
    producer_ids: ProducerIds,
    metastore: Metastore,
    clock: Clock,
    group_settings: GroupSettings,
    transaction_settings: TransactionCoordinatorSettings,
) -> Coordinators:
    offsets_log = InternalTopic(topics, produce, name=OFFSETS_TOPIC, partitions=group_settings.offsets_topic_partitions)
    transactions_log = InternalTopic(
        topics, produce, name=TRANSACTIONS_TOPIC, partitions=transaction_settings.topic_partitions
    )
    offsets = Offsets(offsets_log, OffsetProjection(metastore), clock)
    markers = Markers(topics, produce, offsets, clock, offsets_topic=OFFSETS_TOPIC)
    transactions = Transactions(
        transactions_log, markers, producer_ids, clock, transaction_settings, offsets_log=offsets_log
    )
    produce.check_transaction = transactions.check_append
    return Coordinators(
        offsets=offsets,
        groups=Groups(offsets_log, offsets, topics, clock, group_settings),
        transactions=transactions,
    )
