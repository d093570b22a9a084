"""The audit as the command line reads it: events of one topic of one partition, from the node that was asked."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec

from headrace.cli.kafka_fetch import TopicFetcher
from headrace.clients.kafka import KafkaRequests
from headrace.errors import Denied, Rejected, Unavailable
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.list_offsets_response import ListOffsetsResponse

TOPIC: Final = "__headrace_audit"
_EARLIEST: Final = -2
_LATEST: Final = -1
_WAIT_MS: Final = 500


def read_events(address: str, *, is_from_beginning: bool, is_following: bool) -> Iterator[bytes]:
    """Each as the JSON that it is kept as."""
    position = _offset_at(address, _EARLIEST if is_from_beginning else _LATEST)
    with closing(TopicFetcher(TOPIC, is_committed_only=False)) as fetcher:
        while True:
            (fetched,) = fetcher.fetch({0: address}, {0: position}, wait_ms=_WAIT_MS)
            _check(fetched.error_code)
            for behind, record in fetcher.records_of(fetched, position):
                position = behind
                if record is not None:
                    yield record.value or b""
            if not is_following and position >= fetcher.end_of(fetched):
                return


def line_of(event: bytes) -> str:
    """For people: when, what, who, from where, and the rest as it stands."""
    found = msgspec.json.decode(event)
    data: Mapping[str, Any] = found["data"]  # Any: whatever JSON has
    who = data.get("principal") or "-"
    rest = {key: value for key, value in data.items() if key not in ("principal", "host")}
    shown = f"{found['time']}  {found['type'].removeprefix('headrace.'):<15}  {who}  {data.get('host') or '-'}  "
    return shown + msgspec.json.encode(rest).decode()


def _offset_at(address: str, timestamp: int) -> int:
    with KafkaRequests(address) as node:
        wanted = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, timestamp)])
        answer = node.call(ListOffsetsRequest(-1, 0, [wanted]), 4, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    _check(found.error_code)
    return found.offset


def _check(code: int) -> None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Rejected("there is no audit that you may read; a node keeps one with security.audit.enable=true")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise Denied(f"not allowed to read {TOPIC}")
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise Unavailable(f"another node keeps {TOPIC}: ask that one")
    if code:
        raise Unavailable(f"the audit cannot be read: error {code}")
