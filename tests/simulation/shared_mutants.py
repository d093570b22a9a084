"""Clusters with one rule broken each, as `mutants.py` has them for a node that is alone."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Compare, exists
from headrace.control.plans import Fence
from headrace.log.checkpoint import PartitionCheckpoint
from headrace.log.partition import PartitionLog
from headrace.tier import states, sweeper
from headrace.tier.commits import Commits
from headrace.tier.plans import Claim
from headrace.tier.states import BrokerStates

Patch = pytest.MonkeyPatch


def claimed_in_any_epoch(patch: Patch) -> None:
    """Who led once claims with what the metastore says of the leader now."""
    claim = Commits.claim

    def careless(self: Commits, topic_id: bytes, partition: int, **named: Any) -> Claim:
        entry = self.topic(topic_id).partitions[partition]
        leader, entry.leader = entry.leader, self.broker_id
        try:
            return claim(self, topic_id, partition, **{**named, "leader_epoch": entry.leader_epoch})
        finally:
            entry.leader = leader

    patch.setattr(Commits, "claim", careless)
    not_fenced(patch)


def not_fenced(patch: Patch) -> None:
    """A broker whose epoch is over may still write."""

    def anybody(self: Fence) -> Compare:
        return exists(keys.CLUSTER)

    patch.setattr(Fence, "compare", anybody)
    patch.setattr(Cluster, "_check_fence", lambda self, found: None)


def producers_not_asked_for(patch: Patch) -> None:
    """Whoever takes over knows no producer."""

    async def nothing(self: BrokerStates, partitions: Sequence[PartitionLog]) -> None:
        return

    patch.setattr(BrokerStates, "adopt", nothing)


def deposed_leader_believed(patch: Patch) -> None:
    """What a leader saved counts beyond the end of its epoch."""

    def whole(pictures: Sequence[PartitionCheckpoint], partition: PartitionLog) -> PartitionCheckpoint | None:
        return max(pictures, key=lambda each: each.end_offset, default=None)

    patch.setattr(states, "_true_part", whole)


def keeper_does_not_look(patch: Patch) -> None:
    """The keeper goes by its own memory, in which others' segments are not."""

    async def nobody(store: object) -> set[str]:
        return set()

    patch.setattr(sweeper, "referenced_keys", nobody)


SHARED_MUTANTS: Final[dict[str, Callable[[Patch], None]]] = {
    "claimed-in-any-epoch": claimed_in_any_epoch,
    "not-fenced": not_fenced,
    "producers-not-asked-for": producers_not_asked_for,
    "deposed-leader-believed": deposed_leader_believed,
    "keeper-does-not-look": keeper_does_not_look,
}
