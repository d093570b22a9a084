"""Acknowledgements and reads where the log's end is ahead of the high watermark: an `object` topic whose store is held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.kafka_door import opened_door
from tests.support.logs import turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.broker.topics import PartitionLog
from headrace.clients import MlogClient, RetryPolicy
from headrace.doors.mlog.server import MlogDoor
from headrace.doors.mlog.settings import MlogSettings
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codes import AckMode, ErrorCode
from headrace.wire.mlog.errors import RPCError


class Held:
    """A door over one `object` topic; nothing is uploaded before `let_go`."""

    def __init__(self, partition: PartitionLog, clock: ManualClock, address: str) -> None:
        self.partition = partition
        self.clock = clock
        self.address = address

    def client(self) -> MlogClient:
        return MlogClient([self.address], retry=RetryPolicy(attempts_max=1))

    async def reached_end(self, end_offset: int) -> None:
        while self.partition.durable_end < end_offset:
            await turn_of_the_loop()

    def let_go(self) -> None:
        self.partition.mark_uploaded(self.partition.end_offset)


@contextlib.asynccontextmanager
async def held(directory: Path) -> AsyncIterator[Held]:
    async with opened_door(directory, ["t"], config={"durability": "object"}) as opened:
        door = MlogDoor(MlogSettings(listen="127.0.0.1:0"), opened.door.broker)
        await door.start()
        try:
            yield Held(opened.topics.partition("t", 0), opened.clock, f"127.0.0.1:{door.address[1]}")
        finally:
            await door.stop()


@pytest.mark.parametrize("acks", [AckMode.LEADER, AckMode.ALL])
async def test_only_ack_none_is_answered_before_the_records_are_kept(tmp_path: Path, acks: AckMode) -> None:
    async with held(tmp_path) as log, log.client() as client, log.client() as other:
        assert await other.produce("t", b"unacknowledged", acks=AckMode.NONE) == 0
        assert (log.partition.end_offset, log.partition.high_watermark) == (1, 0)
        waiting = asyncio.ensure_future(client.produce_batch("t", [b"a", b"b"], acks=acks))
        await log.reached_end(3)
        assert await other.fetch("t", offset=0) is None  # Asked and answered while the producer waits.
        assert not waiting.done()
        log.let_go()
        assert (await waiting).BaseOffset == 1
        assert log.partition.high_watermark == 3


async def test_ack_all_gives_up_with_code_16_and_the_record_may_still_be_kept(tmp_path: Path) -> None:
    async with held(tmp_path) as log, log.client() as client:
        waiting = asyncio.ensure_future(client.produce("t", b"x", acks=AckMode.ALL))
        await log.reached_end(1)
        log.clock.advance(MlogSettings().ack_timeout_ms + 1)
        with pytest.raises(RPCError) as late:
            await waiting
        assert late.value.code == ErrorCode.TIMEOUT_CATCH_UP
        log.let_go()
        assert await client.fetch("t", offset=0) == m.LogEntry(Offset=0, Value=b"x")


async def test_consumers_read_below_the_high_watermark_and_replicas_to_the_end(tmp_path: Path) -> None:
    async with held(tmp_path) as log, log.client() as client:
        for value in (b"kept", b"not yet"):
            await client.produce("t", value, acks=AckMode.NONE)
            await log.reached_end(log.partition.end_offset)
            if value == b"kept":
                log.let_go()
        kept, not_yet = m.LogEntry(Offset=0, Value=b"kept"), m.LogEntry(Offset=1, Value=b"not yet")
        assert await client.fetch_batch("t", offset=0, count_max=9) == (kept,)
        assert await client.fetch("t", offset=1) is None
        replica = m.FetchBatchRequest(Topic="t", Offset=0, MaxCount=9, ReplicaNodeID="n2")
        assert await client._ask_leader("t", replica, m.FetchBatchResponse) == m.FetchBatchResponse(
            Entries=(kept, not_yet)
        )
        stream = client.stream("t", offset=0)
        assert await anext(stream) == kept
        waiting = asyncio.ensure_future(anext(stream))
        await turn_of_the_loop(20)
        assert not waiting.done()
        log.let_go()
        assert await waiting == not_yet
