"""The fast path serves what Python has allowed, for as long as that holds, and nothing else."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.kafka_door import OpenedDoor, Wire, opened_door
from tests.support.kernels import kernel_or_skip
from tests.support.logs import batch_of
from tests.support.raw_kafka import produce_request

from headrace.broker.access.rules import Filter, Rule
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.words import Operation, Permission, Resource
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.produce_response import ProduceResponse

kernel_or_skip("headrace.doors.kafka._produce")

VERSION = 9
SECURITY = SecuritySettings(authorization_enable=True, super_users=("User:root",))
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def allow(name: str, *, permission: Permission = Permission.ALLOW, principal: str = "User:alice") -> Rule:
    return Rule(
        resource=Resource.TOPIC, name=name, principal=principal, operation=Operation.WRITE, permission=permission
    )


class Watched:
    """A door whose handler is counted: what it was not called for was served in C."""

    def __init__(self, door: OpenedDoor) -> None:
        self.door = door
        self.access = door.door.broker.access
        self.topics = door.topics

    async def produce(self, wire: Wire, topic: str = "orders", batch: bytes | None = None) -> int:
        request = produce_request(topic, 0, batch or bytes(batch_of(b"v")))
        number = wire.send(request, VERSION)
        await self.door.settle()
        return wire.answer(number, ProduceResponse, VERSION).responses[0].partition_responses[0].error_code

    def is_fast(self, wire: Wire, topic: str = "orders") -> bool:
        return topic in wire._connection._open_topics


@contextlib.asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Watched]:
    names = ["orders", "other"]
    async with opened_door(directory, names, security=SECURITY, auto_create_topics_enable=False) as door:
        yield Watched(door)


async def test_nothing_is_fast_before_python_was_asked(tmp_path: Path) -> None:
    async with watched(tmp_path) as door:
        await door.access.add_rules([allow("orders")])
        wire = door.door.connect("User:alice")
        assert not door.is_fast(wire)
        assert await door.produce(wire) == 0
        assert door.is_fast(wire)
        assert not door.is_fast(wire, "other")
        assert await door.produce(wire) == 0
        assert await door.produce(wire, "other") == DENIED
        # Somebody else's grant is nobody else's.
        assert not door.is_fast(door.door.connect("User:bob"))


async def test_who_may_not_write_never_gets_there(tmp_path: Path) -> None:
    async with watched(tmp_path) as door:
        wire = door.door.connect("User:mallory")
        for _ in range(2):
            assert await door.produce(wire) == DENIED
            assert not door.is_fast(wire)
        assert door.topics.get("orders").partitions[0].end_offset == 0


async def test_a_right_that_is_taken_away_is_gone_at_once(tmp_path: Path) -> None:
    async with watched(tmp_path) as door:
        await door.access.add_rules([allow("orders")])
        wire = door.door.connect("User:alice")
        assert await door.produce(wire) == 0
        assert door.is_fast(wire)
        assert len(await door.access.delete_rules(Filter(name="orders"))) == 1
        assert not door.is_fast(wire)
        assert await door.produce(wire) == DENIED
        await door.access.add_rules([allow("orders")])
        assert await door.produce(wire) == 0
        await door.access.add_rules([allow("orders", permission=Permission.DENY)])
        assert await door.produce(wire) == DENIED


async def test_a_topic_that_is_made_anew_is_asked_about_anew(tmp_path: Path) -> None:
    async with watched(tmp_path) as door:
        await door.access.add_rules([allow("orders")])
        wire = door.door.connect("User:alice")
        assert await door.produce(wire) == 0
        former = door.topics.get("orders")
        await door.topics.delete("orders")
        assert not door.is_fast(wire)
        assert await door.produce(wire) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await door.topics.create("orders", partitions=1)
        assert await door.produce(wire) == 0
        assert former.partitions[0].end_offset == 1
        assert door.topics.get("orders").partitions[0].end_offset == 1


async def test_a_topic_that_becomes_compacted_leaves_the_fast_path(tmp_path: Path) -> None:
    async with watched(tmp_path) as door:
        wire = door.door.connect("User:root")
        assert await door.produce(wire) == 0
        assert door.is_fast(wire)
        await door.topics.alter_config("orders", lambda _: {"cleanup.policy": "compact"})
        assert not door.is_fast(wire)
        assert await door.produce(wire) == ErrorCode.INVALID_RECORD  # without a key


async def test_records_of_a_transaction_need_its_id_on_both_paths(tmp_path: Path) -> None:
    """Somebody who has heard of a producer's number must not write into its transaction."""
    transactional = bytes(batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    async with watched(tmp_path) as door:
        await door.access.add_rules([allow("orders")])
        wire = door.door.connect("User:alice")
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await door.produce(wire, batch=transactional) == refused
        assert await door.produce(wire) == 0
        assert door.is_fast(wire)
        assert await door.produce(wire, batch=transactional) == refused
        assert door.topics.get("orders").partitions[0].end_offset == 1


async def test_without_authorization_all_connections_share_what_is_open(tmp_path: Path) -> None:
    async with opened_door(tmp_path, ["orders"]) as door:
        first, second = door.connect(), door.connect()
        assert first._connection._open_topics is second._connection._open_topics is door.topics.open_to_clients
