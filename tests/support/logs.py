"""A log store on a small ring in a temporary directory, and batches to put into it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.log.partition import Appended, PartitionLog
from headrace.log.policy import TopicPolicy
from headrace.log.settings import LogSettings
from headrace.log.store import LogStore
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_records

NOW_MS = 1_700_000_000_000
RING_BYTES = 1024 * 1024 + 8192
TOPIC_ID = bytes(range(16))


def batch_of(*values: bytes, **options: int) -> bytearray:
    return build_batch([NewRecord(value=value) for value in values], now_ms=NOW_MS, **options)  # type: ignore[arg-type]


def settings_of(directory: Path, **changes: object) -> LogSettings:
    values: dict[str, object] = {
        "wal_path": str(directory / "wal"),
        "wal_capacity_bytes": RING_BYTES,
        "cache_write_size_bytes": 4 * 1024 * 1024,
        **changes,
    }
    return LogSettings(**values)  # type: ignore[arg-type]


class Opened:
    """A started store with its partitions, and what its WAL has complained about."""

    def __init__(self, store: LogStore, partitions: list[PartitionLog], faults: list[HeadraceError]) -> None:
        self.store = store
        self.partitions = partitions
        self.faults = faults

    async def append(self, batch: bytearray, partition: int = 0) -> Appended:
        """Append and wait until it is durable."""
        appended = self.partitions[partition].append(batch, now_ms=NOW_MS)
        await self.store.wal.drain()
        return appended


@contextlib.asynccontextmanager
async def opened(
    directory: Path,
    *,
    partitions: int = 1,
    policy: TopicPolicy | None = None,
    leader_epoch: int = 0,
    uploaded_ends: Sequence[int] = (),
    is_clean: bool = True,
    clock: Clock | None = None,
    silent_ms: Callable[[], int] | None = None,
    **changes: object,
) -> AsyncIterator[Opened]:
    """Open, recover and start; stop at the end, or with `is_clean=False` leave the files as a crash would."""
    faults: list[HeadraceError] = []
    store = LogStore(
        settings_of(directory, **changes),
        data_dir=directory,
        on_fault=faults.append,
        clock=clock,
        silent_ms=silent_ms,
    )
    logs = []
    for index in range(partitions):
        partition = PartitionLog(
            store,
            topic_id=TOPIC_ID,
            topic_name="topic",
            index=index,
            leader_epoch=leader_epoch,
            policy=policy or TopicPolicy(),
            ceiling=1 << 40,
        )
        if index < len(uploaded_ends):
            partition.uploaded_end = uploaded_ends[index]
        store.add(partition)
        logs.append(partition)
    store.recover()
    store.start()
    # Marks of an idle log come by the clock; tests that count groups ask for theirs.
    store.wal._fell_idle = lambda: None  # type: ignore[method-assign]
    try:
        yield Opened(store, logs, faults)
    finally:
        if is_clean:
            await store.stop()
        else:
            store.wal._flusher.close()
            if store.wal._idle_timer is not None:
                store.wal._idle_timer.cancel()
            store.file.close()


async def read_values(partition: PartitionLog, offset: int = 0) -> list[bytes | None]:
    return [record.value for record in await read_all(partition, offset)]


async def read_all(partition: PartitionLog, offset: int = 0) -> list[Record]:
    """Everything readable from `offset` on, from wherever it is."""
    records: list[Record] = []
    while offset < partition.high_watermark:
        if partition.is_hot(offset):
            found = partition.read_tail(offset, 1 << 20, partition.high_watermark, at_least_one=True)
            buffers: Sequence[bytes | bytearray | memoryview] = found.slices
        else:
            buffers = await partition.read_cold(offset, 1 << 20, partition.high_watermark)
        got = [record for buffer in buffers for record in read_records(buffer) if record.offset >= offset]
        if not got:
            break
        records += got
        offset = got[-1].offset + 1
    return records


async def turn_of_the_loop(times: int = 1) -> None:
    """Let everything that is ready run; time does not pass."""
    for _ in range(times):
        await asyncio.sleep(0)
