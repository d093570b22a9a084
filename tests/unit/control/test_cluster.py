"""Changing topics, epochs and registrations through a store, alone and in races."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from time import process_time

import pytest
from tests.support.metastores import ETCD_LIMITS, HeldFile, LossyMetastore, ManualClock, NarrowMetastore, store_over
from tests.support.steps import Calls

from headrace.control import keys, plans, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import ATTEMPTS_MAX, Cluster, take_numbers
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Compare, Metastore, Op, Put, TxnLimits, TxnResult, absent, prefix
from headrace.control.topics import TopicEntry
from headrace.errors import (
    AlreadyExists,
    Concurrent,
    Invalid,
    NotLeader,
    NotReady,
    PartitionNotFound,
    StaleEpoch,
    TopicNotFound,
)
from headrace.ids import Offset

ENDPOINT = pb.BrokerRegistration(host="10.0.1.23", port_quic=9092, port_rpc=9093, rack_id="us-central1-a")


@pytest.fixture
async def disk() -> AsyncIterator[EmbeddedMetastore]:
    store = await EmbeddedMetastore.open()
    yield store
    await store.close()


@pytest.fixture(params=["any size", "small transactions"])
def store(request: pytest.FixtureRequest, disk: EmbeddedMetastore) -> Metastore:
    return disk if request.param == "any size" else NarrowMetastore(disk)


async def join(store: Metastore, broker_id: str = "b1") -> Cluster:
    cluster = await Cluster.load(store, ManualClock())
    await cluster.register(broker_id, ENDPOINT)
    return cluster


def picture(cluster: Cluster) -> list[TopicEntry]:
    return sorted(cluster.topics, key=lambda topic: topic.name)


async def check_same_after_restart(cluster: Cluster) -> None:
    """What we applied by hand is what a fresh look at the store gives."""
    fresh = await Cluster.load(cluster.store, ManualClock())
    assert picture(fresh) == picture(cluster)


async def test_a_cluster_keeps_its_id(store: Metastore) -> None:
    first, second = await Cluster.load(store, ManualClock()), await Cluster.load(store, ManualClock())
    assert first.cluster_id == second.cluster_id
    assert len(first.cluster_id) == 22


@pytest.mark.requirement("R3.21")
async def test_brokers_get_a_number_once_and_an_epoch_each_time(store: Metastore) -> None:
    cluster = await Cluster.load(store, ManualClock())
    taken = [await cluster.register(broker_id, ENDPOINT) for broker_id in ("b1", "b2", "b1")]
    assert [(each.numeric_id, each.broker_epoch) for each in taken] == [(1, 1), (2, 1), (1, 2)]
    brokers = await cluster.brokers()
    assert brokers.keys() == {"b1", "b2"}
    assert (brokers["b1"].host, brokers["b1"].port_quic, brokers["b1"].broker_epoch) == ("10.0.1.23", 9092, 2)


async def test_brokers_that_register_at_once_get_different_numbers(store: Metastore) -> None:
    clusters = [await Cluster.load(store, ManualClock()) for _ in range(5)]
    taken = await asyncio.gather(*(each.register(f"b{index}", ENDPOINT) for index, each in enumerate(clusters)))
    assert sorted(each.numeric_id for each in taken) == [1, 2, 3, 4, 5]


async def test_a_registration_goes_with_its_lease_and_the_epoch_stays(store: Metastore) -> None:
    cluster = await Cluster.load(store, ManualClock())
    lease = (await store.grant_lease(1000)).id
    await cluster.register("b1", ENDPOINT, lease=lease)
    await store.revoke_lease(lease)
    assert await cluster.brokers() == {}
    assert (await cluster.register("b1", ENDPOINT)).broker_epoch == 2


@pytest.mark.requirement("R3.21")
async def test_a_broker_that_leaves_is_no_longer_listed(store: Metastore) -> None:
    old = await join(store, "b1")
    new = await join(store, "b1")
    await old.unregister()
    assert (await new.brokers()).keys() == {"b1"}
    await new.unregister()
    assert await new.brokers() == {}
    assert (await new.register("b1", ENDPOINT)).broker_epoch == 3


async def test_following_makes_good_what_a_cancelled_caller_left(tmp_path: Path) -> None:
    file = HeldFile(tmp_path / "m")
    store = store_over(file)
    cluster = await join(store)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cluster.follow())
        file.may_finish.clear()
        file.has_begun.clear()
        creation = tasks.create_task(cluster.create_topic("t", partitions=1, overrides={}))
        assert await asyncio.to_thread(file.has_begun.wait, 60)
        creation.cancel()
        file.may_finish.set()
        await store.close()
    assert creation.cancelled()
    assert cluster.topics.find("t") is not None


async def test_nothing_is_led_before_registering(store: Metastore) -> None:
    cluster = await Cluster.load(store, ManualClock())
    with pytest.raises(NotReady):
        await cluster.raise_leader_epochs()


@pytest.mark.requirement("R3.22", "R3.23")
@pytest.mark.parametrize("partitions", [1, 127, 128, 300])
async def test_a_topic_is_created_whole(store: Metastore, partitions: int) -> None:
    cluster = await join(store)
    topic = await cluster.create_topic("t", partitions=partitions, overrides={"retention.ms": "-1"})
    assert len(topic.partitions) == partitions
    assert {(each.leader, each.leader_epoch) for each in topic.partitions} == {("b1", 0)}
    item = await store.get("/topics/t/config")
    assert item is not None
    config = values.decode(pb.TopicConfig, item.value)
    assert (config.partitions, config.retention_ms, config.topic_id) == (partitions, -1, topic.id)
    await check_same_after_restart(cluster)


async def test_of_creators_of_one_topic_one_wins(store: Metastore) -> None:
    first, second = await join(store, "b1"), await join(store, "b2")
    outcomes = await asyncio.gather(
        first.create_topic("t", partitions=200, overrides={}),
        second.create_topic("t", partitions=3, overrides={}),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 1
    assert first.topics.get("t").id == second.topics.get("t").id


@pytest.mark.parametrize("partitions", [0, 10_001])
async def test_an_absurd_number_of_partitions_is_refused(store: Metastore, partitions: int) -> None:
    cluster = await join(store)
    with pytest.raises(Invalid):
        await cluster.create_topic("t", partitions=partitions, overrides={})


async def test_partitions_are_added_and_never_taken(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=2, overrides={"x": "1"})
    await cluster.raise_leader_epochs()
    topic = await cluster.add_partitions("t", total=200)
    assert [each.leader_epoch for each in topic.partitions] == [1, 1] + [0] * 198
    assert topic.overrides == {"x": "1"}
    for total in (200, 3):
        with pytest.raises(Invalid):
            await cluster.add_partitions("t", total=total)
    await check_same_after_restart(cluster)


async def test_configuration_is_replaced_whole(store: Metastore) -> None:
    cluster = await join(store)
    created = await cluster.create_topic("t", partitions=1, overrides={"a": "1", "b": "2"})
    changed = await cluster.set_config("t", lambda overrides: {"b": f"{overrides['b']}3"})
    assert (changed.overrides, changed.id) == ({"b": "23"}, created.id)
    await check_same_after_restart(cluster)


async def test_a_deleted_topic_leaves_only_its_grave(store: Metastore) -> None:
    cluster = await join(store)
    topic = await cluster.create_topic("t", partitions=3, overrides={})
    await cluster.create_topic("t2", partitions=1, overrides={})
    await cluster.raise_ceilings({("t", 0): 100})
    await cluster.delete_topic("t")
    assert (await store.range(keys.topic("t"))).items == ()
    (grave,) = (await store.range(keys.DELETED_TOPICS)).items
    assert values.decode(pb.DeletedTopic, grave.value).topic_id == topic.id
    with pytest.raises(TopicNotFound):
        await cluster.delete_topic("t")
    again = await cluster.create_topic("t", partitions=1, overrides={})
    assert again.id != topic.id
    assert again.partitions[0].ceiling == 0
    await check_same_after_restart(cluster)


@pytest.mark.requirement("R3.24")
async def test_each_start_raises_every_leader_epoch_by_one(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=300, overrides={})
    for start in range(1, 4):
        cluster = await join(store)
        await cluster.raise_leader_epochs({("t", 5): Offset(start * 10)})
        assert {each.leader_epoch for each in cluster.topics.get("t").partitions} == {start}
    assert cluster.topics.partition("t", 5).epoch_starts == ((0, 0), (1, 10), (2, 20), (3, 30))
    await check_same_after_restart(cluster)


async def test_only_led_partitions_get_a_new_epoch(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=2, overrides={}, leaders=["b1", "b2"])
    await cluster.raise_leader_epochs()
    assert [each.leader_epoch for each in cluster.topics.get("t").partitions] == [1, 0]


async def test_the_last_leader_epoch_is_the_last(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=1, overrides={})
    last = pb.PartitionLeader(broker_id="b1", leader_epoch=2**31 - 1)
    await store.txn((), (Put(keys.leader("t", 0), values.encode(last)),))
    cluster = await join(store)
    with pytest.raises(StaleEpoch):
        await cluster.raise_leader_epochs()


async def test_ceilings_log_starts_and_wal_ends_only_rise(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=2, overrides={})
    await cluster.raise_ceilings({("t", 0): 100, ("t", 1): 50})
    await cluster.raise_ceilings({("t", 0): 90, ("t", 1): 60})
    await cluster.raise_log_starts({("t", 0): 7})
    await cluster.raise_log_starts({("t", 0): 3})
    await cluster.raise_wal_ends({("t", 0): 9})
    await cluster.raise_wal_ends({("t", 0): 4})
    assert [each.ceiling for each in cluster.topics.get("t").partitions] == [100, 60]
    assert cluster.topics.partition("t", 0).log_start == 7
    assert cluster.topics.partition("t", 0).wal_end == 9
    await check_same_after_restart(cluster)


async def test_a_ceiling_is_never_lowered_by_a_race(store: Metastore) -> None:
    cluster = await join(store)
    await cluster.create_topic("t", partitions=1, overrides={})
    await asyncio.gather(*(cluster.raise_ceilings({("t", 0): ceiling}) for ceiling in (300, 100, 200)))
    assert cluster.topics.partition("t", 0).ceiling == 300
    await check_same_after_restart(cluster)


async def test_only_the_leader_moves_a_partitions_offsets(store: Metastore) -> None:
    cluster, other = await join(store, "b1"), await join(store, "b2")
    await cluster.create_topic("t", partitions=1, overrides={})
    other = await join(store, "b2")
    with pytest.raises(NotLeader):
        await other.raise_ceilings({("t", 0): 5})
    taken_over = pb.PartitionLeader(broker_id="b2", leader_epoch=1)
    await store.txn((), (Put(keys.leader("t", 0), values.encode(taken_over)),))
    with pytest.raises(NotLeader):
        await cluster.raise_log_starts({("t", 0): 5})
    with pytest.raises(PartitionNotFound):
        await cluster.raise_ceilings({("t", 1): 5})


async def test_an_older_incarnation_is_fenced(store: Metastore) -> None:
    old = await join(store)
    await old.create_topic("t", partitions=1, overrides={})
    new = await join(store)
    with pytest.raises(StaleEpoch):
        await old.raise_ceilings({("t", 0): 5})
    with pytest.raises(StaleEpoch):
        await old.raise_leader_epochs()
    await new.raise_ceilings({("t", 0): 5})


async def test_a_topic_created_again_by_another_is_not_taken_for_the_old_one(store: Metastore) -> None:
    cluster, other = await join(store, "b1"), await join(store, "b2")
    await cluster.create_topic("t", partitions=1, overrides={})
    other = await join(store, "b2")
    await other.delete_topic("t")
    await other.create_topic("t", partitions=1, overrides={}, leaders=["b1"])
    with pytest.raises(TopicNotFound, match="another"):
        await cluster.raise_ceilings({("t", 0): 5})
    await check_same_after_restart(cluster)


async def test_a_topic_deleted_by_another_is_gone_at_the_next_change(store: Metastore) -> None:
    cluster, other = await join(store, "b1"), await join(store, "b2")
    for name in ("t", "u", "v"):
        await cluster.create_topic(name, partitions=1, overrides={})
    other = await join(store, "b2")
    for name in ("t", "u", "v"):
        await other.delete_topic(name)
    with pytest.raises(TopicNotFound):
        await cluster.raise_ceilings({("t", 0): 5})
    with pytest.raises(TopicNotFound):
        await cluster.set_config("u", dict)
    with pytest.raises(TopicNotFound):
        await cluster.delete_topic("v")


async def test_following_shows_what_others_write(store: Metastore) -> None:
    cluster, other = await join(store, "b1"), await join(store, "b2")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cluster.follow())
        await other.create_topic("t", partitions=200, overrides={})
        await other.raise_leader_epochs()
        await other.create_topic("gone", partitions=1, overrides={})
        await other.delete_topic("gone")
        await store.close()
    assert picture(cluster) == picture(other)


async def test_producer_ids_come_in_blocks_of_a_thousand(store: Metastore) -> None:
    cluster = await join(store)
    blocks = await asyncio.gather(*(cluster.take_producer_ids() for _ in range(3)))
    assert sorted(block.start for block in blocks) == [0, 1000, 2000]
    assert {len(block) for block in blocks} == {1000}


async def test_a_counter_begins_where_it_is_told(store: Metastore) -> None:
    assert await take_numbers(store, keys.NEXT_OBJECT_ID, 2, first=1) == range(1, 3)
    assert await take_numbers(store, keys.NEXT_OBJECT_ID, 1, first=1) == range(3, 4)


async def test_races_are_not_run_for_ever(disk: EmbeddedMetastore) -> None:
    class Contended(NarrowMetastore):
        """Somebody else is always a moment faster."""

        async def txn(
            self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()
        ) -> TxnResult:
            self.txn_count += 1
            return TxnResult(False, 1, ())

    contended = Contended(disk)
    with pytest.raises(Concurrent):
        await take_numbers(contended, keys.NEXT_OBJECT_ID, 1)
    assert contended.txn_count == ATTEMPTS_MAX


@pytest.fixture
async def large(tmp_path: Path) -> Path:
    """A store with 10,000 partitions of one broker, which has stopped."""
    path = tmp_path / "metastore.sqlite"
    store = await EmbeddedMetastore.open(path)
    cluster = await join(store)
    for name in ("t", "u"):
        await cluster.create_topic(name, partitions=5000, overrides={})
    everything = list(cluster.topics.led_by("b1"))
    await cluster.raise_ceilings(dict.fromkeys(everything, 1000))
    await cluster.raise_log_starts(dict.fromkeys(everything, 10))
    await store.close()
    return path


async def spent_by_a_start(path: Path, spent: Callable[[], float]) -> tuple[float, float]:
    """What `spent` says of loading the cluster, and of taking its partitions over."""
    began = spent()
    store = await EmbeddedMetastore.open(path)
    cluster = await Cluster.load(store, ManualClock())
    loaded = spent()
    await cluster.register("b1", ENDPOINT)
    await cluster.raise_leader_epochs()
    raised = spent()
    await store.close()
    assert len((cluster.topics.get("t")).partitions) == 5000
    return loaded - began, raised - loaded


async def test_a_start_takes_so_many_calls_for_a_partition(large: Path) -> None:
    """Half a second of CPU time each for 10,000 partitions, where it was measured."""
    calls = Calls()
    with calls.counted():
        loading, raising = await spent_by_a_start(large, lambda: calls.count)
    assert loading < 75 * 10_000
    assert raising < 125 * 10_000


@pytest.mark.long
async def test_ten_thousand_partitions_start_within_a_second(large: Path) -> None:
    """Of processor time, which does not depend on what else the machine does."""
    loading_s, raising_s = await spent_by_a_start(large, process_time)
    assert loading_s < 1
    assert raising_s < 1


async def test_bulk_changes_take_as_few_transactions_as_the_store_allows(disk: EmbeddedMetastore) -> None:
    narrow = NarrowMetastore(disk)
    cluster = await join(narrow)
    await cluster.create_topic("t", partitions=1000, overrides={})
    before = narrow.txn_count
    await cluster.raise_leader_epochs()
    assert narrow.txn_count - before == -(-1000 // (narrow.txn_limits.ops_max - 1))
    wide = await join(disk)
    revision = disk.revision
    await wide.raise_leader_epochs()
    assert disk.revision == revision + 1


def test_packing_keeps_order_and_bounds() -> None:
    put = [Put(f"/{index}", b"") for index in range(10)]
    steps = [plans.Step((absent(op.key),), (op,)) for op in put]
    guard = absent("/guard")
    txns = plans.pack(steps, TxnLimits(ops_max=4, bytes_max=10_000), guards=(guard,))
    assert [len(txn.then_ops) for txn in txns] == [3, 3, 3, 1]
    assert [op for txn in txns for op in txn.then_ops] == put
    assert all(txn.compares[0] == guard and len(txn.else_ops) == len(txn.compares) for txn in txns)
    assert plans.pack([], ETCD_LIMITS, guards=(guard,)) == []


def test_packing_counts_bytes_too() -> None:
    steps = [plans.Step((), (Put(f"/{index}", bytes(100)),)) for index in range(10)]
    txns = plans.pack(steps, TxnLimits(ops_max=100, bytes_max=600), guards=(absent("/guard"),))
    assert [len(txn.then_ops) for txn in txns] == [3, 3, 3, 1]


@pytest.mark.parametrize("seed", range(40))
async def test_lost_requests_and_replies_change_nothing_twice_and_forget_nothing(
    disk: EmbeddedMetastore, seed: int
) -> None:
    """Whatever was said to have failed for good may or may not be there; what was acknowledged is, once."""
    lossy = LossyMetastore(disk, random.Random(seed))
    cluster = await Cluster.load(lossy, ManualClock())
    await cluster.register("b1", ENDPOINT)
    numbers: list[int] = []
    for index in range(6):
        numbers += await take_numbers(lossy, keys.NEXT_OBJECT_ID, 3)
        await cluster.create_topic(f"t{index}", partitions=200, overrides={})
        await cluster.raise_leader_epochs()
        await cluster.raise_ceilings({(f"t{index}", 7): 100})
    await cluster.add_partitions("t1", total=300)
    await cluster.set_config("t2", lambda overrides: {**overrides, "retention.ms": "5"})
    await cluster.delete_topic("t3")
    assert lossy.lost_count > 0
    assert len(numbers) == len(set(numbers))
    fresh = await Cluster.load(disk, ManualClock())
    assert picture(cluster) == picture(fresh)
    assert {topic.name for topic in fresh.topics} == {"t0", "t1", "t2", "t4", "t5"}
    assert len(fresh.topics.get("t1").partitions) == 300
    assert fresh.topics.get("t2").overrides == {"retention.ms": "5"}
    assert fresh.topics.partition("t4", 7).ceiling == 100


async def test_everything_stored_can_be_shown(disk: EmbeddedMetastore) -> None:
    cluster = await join(disk)
    await cluster.create_topic("t", partitions=1, overrides={})
    await cluster.raise_ceilings({("t", 0): 5})
    await cluster.take_producer_ids()
    shown = {item.key: values.show(item.key, item.value) for item in (await disk.range(prefix("/"))).items}
    assert shown["/topics/t/partitions/0/leader"]["broker_id"] == "b1"
    assert shown["/topics/t/partitions/0/ceiling"] == {"offset": "5"}
