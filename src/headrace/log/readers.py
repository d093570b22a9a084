"""Those who read a partition, as it knows them: a fetch that waits for more, and what an upload is handed."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.records.batch import Buffer

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog


class UploadRead(NamedTuple):
    """Stretches of whole batches in offset order, and the offset behind them."""

    stretches: list[Buffer]
    end_offset: int


class FetchWaiter(Protocol):
    """A parked fetch: told when this partition has more to read, or is gone."""

    def wake(self, partition: "PartitionLog") -> None: ...
