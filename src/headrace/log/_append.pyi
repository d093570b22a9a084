from headrace.log.common_append import CountingWaiter
from headrace.log.partition import PartitionLog
from headrace.records.batch import Buffer

HEADER_SIZE: int
LENGTH_OVERHEAD: int
CRC_START: int
RECORD_SIZE_MIN: int
GROUP_HEADER_SIZE: int
ENTRY_SIZE: int
UNFLUSHED_BYTES_MAX: int
SMALL_REQUEST: int
PLAIN_AHEAD_MS: int
pointer: object

def append(partition: PartitionLog, batch: Buffer, now_ms: int, waiter: CountingWaiter | None, /) -> int | None: ...
