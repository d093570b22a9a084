"""Transactions as they are decided, without a store that runs them."""

from collections.abc import Sequence

import pytest

from headrace.control import keys, plans, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Put, Txn, TxnLimits, unchanged
from headrace.control.topics import ClusterTopics
from headrace.errors import StaleEpoch
from headrace.ids import TopicId

LIMITS = TxnLimits(ops_max=128, bytes_max=1_500_000)
GUARD = unchanged(keys.ACTIVE_CONTROLLER, 7)


def topics(partitions: int, leader: pb.PartitionLeader) -> ClusterTopics:
    known = ClusterTopics()
    config = values.topic_config(TopicId(bytes(16)), partitions=partitions, overrides={}, created_ms=0)
    known.apply(keys.topic_config("t"), values.encode(config), revision=3)
    for index in range(partitions):
        known.apply(keys.leader("t", index), values.encode(leader), revision=10 + index)
    return known


def written(txns: Sequence[Txn]) -> dict[str, pb.PartitionLeader]:
    puts = [op for txn in txns for op in txn.then_ops if isinstance(op, Put)]
    return {op.key: values.decode(pb.PartitionLeader, op.value) for op in puts}


def test_a_new_leader_comes_with_the_next_epoch_in_one_key() -> None:
    """And takes the former leader's place among the replicas; where its epoch starts it says itself."""
    leader = pb.PartitionLeader(broker_id="b1", leader_epoch=4, replicas=["b1"], isr=["b1"])
    leader.epoch_starts.add(leader_epoch=4, start_offset=90)
    (txn,) = plans.move_leaders(topics(1, leader), {("t", 0): "b2"}, guards=(GUARD,), limits=LIMITS)
    assert txn.compares == (GUARD, unchanged(keys.leader("t", 0), 10))
    moved = written([txn])[keys.leader("t", 0)]
    assert (moved.broker_id, moved.leader_epoch, list(moved.replicas), list(moved.isr)) == ("b2", 5, ["b2"], ["b2"])
    assert [(each.leader_epoch, each.start_offset) for each in moved.epoch_starts] == [(4, 90)]


def test_a_replica_that_becomes_leader_stays_the_replica_it_was() -> None:
    leader = pb.PartitionLeader(broker_id="b1", leader_epoch=4, replicas=["b1", "b2"], isr=["b1", "b2"])
    txns = plans.move_leaders(topics(1, leader), {("t", 0): "b2"}, guards=(GUARD,), limits=LIMITS)
    assert list(written(txns)[keys.leader("t", 0)].replicas) == ["b1", "b2"]


def test_many_moves_are_made_in_chunks_each_under_the_guards() -> None:
    known = topics(300, pb.PartitionLeader(broker_id="b1"))
    txns = plans.move_leaders(known, {("t", index): "b2" for index in range(300)}, guards=(GUARD,), limits=LIMITS)
    assert len(txns) == 3
    assert all(txn.compares[0] == GUARD and len(txn.compares) <= LIMITS.ops_max for txn in txns)
    assert written(txns).keys() == {keys.leader("t", index) for index in range(300)}


def test_the_last_epoch_there_is_cannot_be_followed() -> None:
    known = topics(1, pb.PartitionLeader(broker_id="b1", leader_epoch=2**31 - 1))
    with pytest.raises(StaleEpoch):
        plans.move_leaders(known, {("t", 0): "b2"}, guards=(), limits=LIMITS)
