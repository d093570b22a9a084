"""ListOffsets, v1-v10.

- Special timestamps: -1 latest (the last stable offset at read_committed), -2 earliest, -3 greatest timestamp (v7),
  -4 earliest on this broker (v8), -5 last uploaded (v9).
- Nothing found is offset -1, timestamp -1, error 0.
- The leader epoch is that in which the record at the offset was written, whoever leads now; that of the leader for the
  latest. So one question has one answer for as long as the record is there: librdkafka may ask for the earliest once
  more while it reads, and takes the same offset in another epoch for another place to read from.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.broker.topics import PartitionLog
from headrace.doors.kafka.epochs import check_epoch
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, UnsupportedOperation
from headrace.wire.kafka.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from headrace.wire.kafka.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


class Special(IntEnum):
    """Timestamps that are no time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_MIN_VERSION: Final[Mapping[int, int]] = {
    Special.MAX_TIMESTAMP: 7,
    Special.EARLIEST_LOCAL: 8,
    Special.LATEST_TIERED: 9,
}


class Found(NamedTuple):
    offset: int
    timestamp_ms: int = -1


async def handle(request: ListOffsetsRequest, version: int, session: Session) -> ListOffsetsResponse:
    is_committed = request.isolation_level == 1
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    await _answer(topic.name, partition, version, is_committed, session)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _answer(
    name: str, asked: ListOffsetsPartition, version: int, is_committed: bool, session: Session
) -> ListOffsetsPartitionResponse:
    try:
        _check_special(asked.timestamp, version)
        log = session.broker.topics.led_partition(name, asked.partition_index)
        check_epoch(log, asked.current_leader_epoch)
        found = await _find(log, asked.timestamp, is_committed)
    except HeadraceError as error:
        return ListOffsetsPartitionResponse(asked.partition_index, code_of(error))
    return ListOffsetsPartitionResponse(
        asked.partition_index,
        0,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=_epoch_of(found, asked.timestamp, log),
    )


def _check_special(timestamp: int, version: int) -> None:
    """Asked before anything is looked for: what the client means is not known."""
    if timestamp < min(Special):
        raise UnsupportedOperation(f"timestamp {timestamp} means nothing here")
    if version < _MIN_VERSION.get(timestamp, 0):
        raise UnsupportedOperation(f"timestamp {timestamp} needs v{_MIN_VERSION[timestamp]}")


def _epoch_of(found: Found, timestamp: int, log: PartitionLog) -> int:
    if found.offset < 0:
        return -1
    return log.leader_epoch if timestamp == Special.LATEST else log.epoch_at(found.offset)


async def _find(log: PartitionLog, timestamp: int, is_committed: bool) -> Found:
    match timestamp:
        case Special.LATEST:
            return Found(log.last_stable_offset if is_committed else log.high_watermark)
        case Special.EARLIEST:
            return Found(log.log_start)
        case Special.EARLIEST_LOCAL:
            return Found(log.local_start)
        case Special.LATEST_TIERED:
            return Found(log.uploaded_end - 1 if log.uploaded_end > log.log_start else -1)
        case Special.MAX_TIMESTAMP:
            found = await log.newest_record()
        case _:
            found = await log.find_time(timestamp)
    if found is None or (is_committed and found[0] >= log.last_stable_offset):
        return Found(-1)
    return Found(*found)
