"""How many idempotent producers the partitions of this node remember, and what happens when more come.

A client can make up a producer id with every batch, and each costs a kilobyte for a day. When there are too many, those
that have been silent for longer than clients repeat a batch are forgotten early; where that does not help, producers that
are new here are told to come back. Nobody who may still repeat a batch is forgotten: it would be written twice.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.errors import Overloaded
from headrace.log.settings import LogSettings
from headrace.telemetry.logging import get_logger

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog

REPEATED_MS_MAX: Final = 15 * 60_000
"""No client repeats a batch for longer: Kafka's own clients give up after two minutes, librdkafka after five."""
_PAUSE_MS: Final = 1_000
"""Between two rounds of forgetting: each looks at every producer of a partition, or of the node."""

log = get_logger(__name__)


class ProducerBudget:
    def __init__(
        self,
        settings: LogSettings,
        *,
        count: Callable[[], int],
        forget: Callable[["PartitionLog | None", int, int], int],
    ) -> None:
        """`count` is that of all partitions; `forget(partition, now_ms, silent_ms)` is for one partition, or for all."""
        self._per_node_max = settings.producer_ids_max
        self._per_partition_max = settings.producer_ids_per_partition_max
        self._count = count
        self._forget = forget
        self._known_count: int | None = None
        """Of all partitions, as last counted and admitted since."""
        self._forgotten_ms = -_PAUSE_MS

    def admit(self, partition: "PartitionLog", now_ms: int) -> None:
        """A producer that `partition` does not know is about to write there; `Overloaded` when there are too many."""
        if self._known_count is None:
            self.recount()
        if partition.producers is not None and len(partition.producers) >= self._per_partition_max:
            self._make_room(partition, now_ms)
            if len(partition.producers) >= self._per_partition_max:
                self._refuse(partition, f"{partition.topic_name}-{partition.index}", self._per_partition_max)
        if self._known_count is not None and self._known_count >= self._per_node_max:
            self._make_room(None, now_ms)
            if self._known_count >= self._per_node_max:
                self._refuse(partition, "this broker", self._per_node_max)
        self._known_count = (self._known_count or 0) + 1

    def recount(self) -> None:
        self._known_count = self._count()

    def _make_room(self, partition: "PartitionLog | None", now_ms: int) -> None:
        if now_ms - self._forgotten_ms < _PAUSE_MS:
            return
        self._forgotten_ms = now_ms
        forgotten = self._forget(partition, now_ms, REPEATED_MS_MAX)
        self.recount()
        if forgotten:
            log.warning("producers forgotten early", producers=forgotten, known=self._known_count)

    def _refuse(self, partition: "PartitionLog", where: str, limit: int) -> None:
        log.warning("producer refused", topic=partition.topic_name, partition=partition.index, limit=limit)
        raise Overloaded(f"{where} remembers {limit} producers already, and all of them wrote lately; try again later")
