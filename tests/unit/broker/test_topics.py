"""Topics: names and ids to live partitions, and that the store decides before anything shows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, batch_of, opened, turn_of_the_loop
from tests.support.metastores import ManualClock

from headrace.broker.topics import Topic, Topics, check_name
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import (
    AlreadyExists,
    Invalid,
    InvalidName,
    NotLeader,
    OffsetOutOfRange,
    PartitionNotFound,
    TopicNotFound,
)
from headrace.log.store import CEILING_STEP


@contextlib.asynccontextmanager
async def topics_in(directory: Path, defaults: Mapping[str, str] | None = None) -> AsyncIterator[Topics]:
    metastore = await EmbeddedMetastore.open()
    cluster = await Cluster.load(metastore, ManualClock())
    await cluster.register("b1", pb.BrokerRegistration(host="localhost"))
    try:
        async with opened(directory, partitions=0) as log:
            yield Topics(cluster, log.store, defaults=defaults or {})
            await turn_of_the_loop(3)
    finally:
        await metastore.close()


@pytest.fixture
async def topics(tmp_path: Path) -> AsyncIterator[Topics]:
    async with topics_in(tmp_path) as made:
        yield made


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 255, "...", "__own"])
def test_names_of_kafkas_characters_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.requirement("C11")
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * 256, "a:b", "\u0661"])
def test_other_names_are_not(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


async def test_topic_is_found_by_name_id_and_partition(topics: Topics) -> None:
    topic = await topics.create("orders", partitions=3)
    assert topics.find("orders") is topics.get("orders") is topics.find_by_id(topic.id) is topic
    assert [each.index for each in topic.partitions] == [0, 1, 2]
    assert topics.partition("orders", 2) is topic.partitions[2]
    assert topics.find("other") is topics.find_by_id(bytes(16)) is None
    with pytest.raises(TopicNotFound):
        topics.get("other")
    for index in (-1, 3):
        with pytest.raises(PartitionNotFound):
            topics.partition("orders", index)


async def test_all_topics_come_in_the_order_of_their_names(topics: Topics) -> None:
    for name in ("c", "a", "b"):
        await topics.create(name, partitions=1)
    assert [topic.name for topic in topics.all()] == ["a", "b", "c"]


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
async def test_number_of_partitions_is_bounded(topics: Topics, partitions: int) -> None:
    with pytest.raises(Invalid):
        await topics.create("many", partitions=partitions)


async def test_second_creation_is_refused_and_ensuring_is_not(topics: Topics) -> None:
    first = await topics.create("once", partitions=1)
    with pytest.raises(AlreadyExists):
        await topics.create("once", partitions=1)
    assert await topics.ensure("once", partitions=9) is first


async def test_everybody_who_ensures_at_once_shares_one_creation(topics: Topics) -> None:
    made: list[Topic] = await asyncio.gather(*(topics.ensure("shared", partitions=2) for _ in range(10)))
    assert len({topic.id for topic in made}) == 1
    assert topics._creating == {}


async def test_creation_that_fails_fails_for_all_and_can_be_tried_again(topics: Topics) -> None:
    tries = [topics.ensure("bad", partitions=1, config={"no.such.key": "1"}) for _ in range(3)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(each) for each in outcomes} == {Invalid}
    assert (await topics.ensure("bad", partitions=1)).name == "bad"


@pytest.mark.trap(14)
async def test_topic_that_comes_again_is_another_topic(topics: Topics) -> None:
    first = await topics.create("phoenix", partitions=1)
    first.partitions[0].append(batch_of(b"x"), now_ms=NOW_MS)
    gone: list[Topic] = []
    topics.on_removed.append(gone.append)
    await topics.delete("phoenix")
    assert gone == [first]
    assert topics.find("phoenix") is topics.find_by_id(first.id) is None
    with pytest.raises(NotLeader):
        first.partitions[0].append(batch_of(b"x"), now_ms=NOW_MS)
    second = await topics.create("phoenix", partitions=1)
    assert second.id not in (first.id, bytes(16))
    assert second.partitions[0].end_offset == 0
    with pytest.raises(TopicNotFound):
        await topics.delete("nobody")


async def test_topics_grow_and_never_shrink(topics: Topics) -> None:
    topic = await topics.create("growing", partitions=2)
    kept, revision, shape = topic.partitions[0], topic.revision, topics.shape_revision
    await topics.add_partitions("growing", 5)
    assert [each.index for each in topic.partitions] == [0, 1, 2, 3, 4]
    assert topic.partitions[0] is kept
    assert topic.revision > revision
    assert topics.shape_revision > shape
    for count in (5, 4, 0, 10_001):
        with pytest.raises(Invalid):
            await topics.add_partitions("growing", count)


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (4, 4)])
async def test_topics_that_two_let_grow_at_once_get_each_partition_once(topics: Topics, counts: list[int]) -> None:
    topic = await topics.create("growing", partitions=2)
    outcomes = await asyncio.gather(
        *(topics.add_partitions("growing", count) for count in counts), return_exceptions=True
    )
    assert {type(each) for each in outcomes} <= {type(None), Invalid}
    assert [each.index for each in topic.partitions] == list(range(max(counts)))
    assert all(topics._store.find(topic.id, each.index) is each for each in topic.partitions)
    assert min(each.ceiling for each in topic.partitions) >= CEILING_STEP


async def test_changed_config_is_in_force_at_once_on_every_partition(tmp_path: Path) -> None:
    async with topics_in(tmp_path, {"max.message.bytes": "5000"}) as topics:
        topic = await topics.create("t", partitions=2, config={"retention.ms": "7"})
        assert {each.policy.message_bytes_max for each in topic.partitions} == {5000}
        await topics.alter_config("t", lambda _: {"max.message.bytes": "100"})
        assert {each.policy.message_bytes_max for each in topic.partitions} == {100}
        # The whole set is replaced.
        assert {each.policy.retention_ms for each in topic.partitions} == {604_800_000}
        assert topic.overrides == {"max.message.bytes": "100"}
        with pytest.raises(Invalid):
            await topics.alter_config("t", lambda _: {"max.message.bytes": "many"})
        await topics.add_partitions("t", 3)
        assert topic.partitions[2].policy.message_bytes_max == 100


async def test_changes_of_two_at_once_are_both_in_force(topics: Topics) -> None:
    topic = await topics.create("t", partitions=1)

    def setting(key: str, value: str) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
        return lambda overrides: {**overrides, key: value}

    wanted = {"max.message.bytes": "100", "retention.ms": "7", "retention.bytes": "9"}
    await asyncio.gather(*(topics.alter_config("t", setting(*each)) for each in wanted.items()))
    assert topic.overrides == wanted
    assert topics._cluster.topics.get("t").overrides == wanted
    policy = topic.partitions[0].policy
    assert (policy.message_bytes_max, policy.retention_ms, policy.retention_bytes) == (100, 7, 9)


async def test_deleting_records_moves_the_start_and_stops_at_the_readable_end(topics: Topics) -> None:
    topic = await topics.create("cut", partitions=1)
    (partition,) = topic.partitions
    partition.append(batch_of(*[b"x"] * 10), now_ms=NOW_MS)
    with pytest.raises(OffsetOutOfRange):
        await topics.delete_records("cut", 0, 5)
    await topics._store.wal.drain()
    assert await topics.delete_records("cut", 0, 4) == 4
    assert await topics.delete_records("cut", 0, 2) == 4
    for before in (11, -2):
        with pytest.raises(OffsetOutOfRange):
            await topics.delete_records("cut", 0, before)
    assert await topics.delete_records("cut", 0, -1) == 10
    assert partition.log_start == 10


async def test_ceiling_is_raised_before_it_is_reached(topics: Topics) -> None:
    topic = await topics.create("busy", partitions=1)
    (partition,) = topic.partitions
    assert partition.ceiling >= CEILING_STEP
    partition.ceiling = 10
    partition.append(batch_of(b"x"), now_ms=NOW_MS)
    assert topics.ceilings.task is not None
    await topics.ceilings.task
    assert partition.ceiling == 1 + CEILING_STEP
    assert topics.ceilings.task is None


OFFSETS = "__consumer_offsets"


@pytest.mark.parametrize("name", [OFFSETS, "__transaction_state"])
async def test_internal_topics_belong_to_their_coordinators(topics: Topics, name: str) -> None:
    for refused in (topics.create(name, partitions=1), topics.ensure(name, partitions=1)):
        with pytest.raises(InvalidName):
            await refused
    topic = await topics.ensure_internal(name, partitions=2)
    assert topic.is_internal
    assert await topics.ensure(name, partitions=9) is topic
    for refused_too in (topics.delete(name), topics.add_partitions(name, 3), topics.delete_records(name, 0, -1)):
        with pytest.raises(InvalidName):
            await refused_too
    assert not (await topics.create("__my_own", partitions=1)).is_internal


@pytest.mark.parametrize(
    "asked",
    [
        {"cleanup.policy": "delete"},
        {"cleanup.policy": "compact,delete"},
        {"retention.ms": "1"},
        {"max.message.bytes": "1000"},
    ],
)
async def test_what_a_coordinator_needs_of_its_topic_cannot_be_configured_away(
    topics: Topics, asked: dict[str, str]
) -> None:
    with pytest.raises(Invalid):
        await topics.create_internal(OFFSETS, partitions=1, config=asked)
    topic = await topics.ensure_internal(OFFSETS, partitions=1)
    before = dict(topic.overrides)
    for edit in (lambda _: asked, lambda overrides: {**overrides, **asked}):
        with pytest.raises(Invalid):
            await topics.alter_config(OFFSETS, edit)
        assert (topic.overrides, topic.partitions[0].policy.is_compacted) == (before, True)


async def test_configs_taken_from_an_internal_topic_come_back_and_others_may_be_set(topics: Topics) -> None:
    topic = await topics.ensure_internal(OFFSETS, partitions=1)
    wanted = {"segment.bytes": "104857600", "max.message.bytes": str(64 << 20), "durability": "object"}
    await topics.alter_config(OFFSETS, lambda _: wanted)
    assert topic.overrides == {**wanted, "cleanup.policy": "compact", "retention.ms": "-1"}
    assert topic.partitions[0].policy.message_bytes_max == 64 << 20


async def test_harmful_configs_that_are_stored_already_are_not_in_force(topics: Topics) -> None:
    entry = await topics._cluster.create_topic(
        OFFSETS, partitions=1, overrides={"cleanup.policy": "delete", "retention.ms": "1", "max.message.bytes": "9"}
    )
    topic = topics._open(entry)
    policy = topic.partitions[0].policy
    assert (policy.is_compacted, policy.is_deleted_by_retention, policy.retention_ms) == (True, False, -1)
    assert policy.message_bytes_max == int(topic.overrides["max.message.bytes"]) == 16 << 20


async def test_names_that_differ_only_in_dots_and_underscores_are_found(topics: Topics) -> None:
    await topics.create("a.b_c", partitions=1)
    assert topics.alike("a_b.c") == "a.b_c"
    assert topics.alike("a.b_c") is None
    assert topics.alike("a-b_c") is None
    await topics.delete("a.b_c")
    assert topics.alike("a_b.c") is None
    assert topics._alike == {}
