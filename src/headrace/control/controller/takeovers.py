"""Whose WAL is to be taken over, and by whom. Pure: from what the store says of partitions, brokers and takeovers.

- Only a broker that is fenced loses its WAL: one that has registered again reads it itself.
- Brokers of the same machine can read it. One of them does, for all partitions that are in it.
- A taker that is not active any more is replaced, as is one that said that it cannot read the WAL. Its owner, once it is back with another ring,
  is as good as any other.
- It is done when no partition is in that WAL any more, or when its own owner says that it is not there.

Like all decisions of a controller these are wishes, repeated until the store shows them. What an operator asks for is checked here, too.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from headrace.control import values_pb2 as pb
from headrace.control.topics import ClusterTopics
from headrace.control.wal_plans import is_in_ring
from headrace.errors import Conflict


class Wanted(NamedTuple):
    owner: str
    value: pb.Takeover
    is_new: bool
    """It begins: only if the owner's registration is still what it was."""


def wanted(
    topics: ClusterTopics, brokers: Mapping[str, pb.BrokerRegistration], known: Mapping[str, pb.Takeover]
) -> Iterator[Wanted]:
    rings = _rings(topics)
    for owner, takeover in known.items():
        if not takeover.is_done:
            changed = _gone_on(owner, takeover, brokers, is_empty=takeover.ring_id not in rings.get(owner, {}))
            if changed != takeover:
                yield Wanted(owner, changed, is_new=False)
    for owner, counts in rings.items():
        is_under_way = owner in known and not known[owner].is_done
        registration = brokers.get(owner)
        if is_under_way or registration is None or registration.state != pb.FENCED:
            continue
        taker = _choose(registration.machine_id, brokers, refused_by=(owner,))
        if taker:
            ring_id = registration.ring_id if registration.ring_id in counts else min(counts)
            begun = pb.Takeover(
                ring_id=ring_id, taker=taker, wal_path=registration.wal_path, machine_id=registration.machine_id
            )
            yield Wanted(owner, begun, is_new=True)


def _gone_on(
    owner: str, takeover: pb.Takeover, brokers: Mapping[str, pb.BrokerRegistration], *, is_empty: bool
) -> pb.Takeover:
    changed = pb.Takeover()
    changed.CopyFrom(takeover)
    if is_empty or owner in takeover.refused_by:
        changed.is_done = True
    elif not _is_able(brokers.get(takeover.taker), takeover.machine_id) or takeover.taker in takeover.refused_by:
        changed.taker = _choose(takeover.machine_id, brokers, refused_by=takeover.refused_by)
    return changed


def _rings(topics: ClusterTopics) -> dict[str, dict[bytes, int]]:
    """Of every leader, the rings that have records of what it leads, with the number of partitions."""
    found: dict[str, dict[bytes, int]] = {}
    for topic in topics:
        for entry in topic.partitions:
            if is_in_ring(entry):
                counts = found.setdefault(entry.leader, {})
                counts[entry.ring_id] = counts.get(entry.ring_id, 0) + 1
    return found


def _choose(machine_id: str, brokers: Mapping[str, pb.BrokerRegistration], *, refused_by: Collection[str]) -> str:
    """The first by name of those who are able; empty when nobody is."""
    able = (name for name, each in brokers.items() if name not in refused_by and _is_able(each, machine_id))
    return min(able, default="")


def _is_able(broker: pb.BrokerRegistration | None, machine_id: str) -> bool:
    return broker is not None and broker.state == pb.ACTIVE and bool(machine_id) and broker.machine_id == machine_id


GIVE_UP_AFTER_MS: Final = 66_000
"""Since a broker was heard: by then it acknowledges nothing any more (`wal.lease.ms`, a minute), also if its clock is a tenth slower."""


def by_hand(
    topics: ClusterTopics,
    brokers: Mapping[str, pb.BrokerRegistration],
    known: pb.Takeover | None,
    *,
    owner: str,
    taker: str,
    ring_id: bytes,
    wal_path: str,
) -> pb.Takeover:
    """An operator has brought the WAL to where `taker` can read it. Raises `Conflict`."""
    rings = _rings(topics).get(owner, {})
    _check_gone(owner, brokers, rings)
    if ring_id not in rings:
        raise Conflict(f"this is not the WAL that has records of {owner}: its partitions are in another one")
    if known is not None and not known.is_done and known.taker and known.taker != taker:
        raise Conflict(f"broker {known.taker} is taking the WAL of {owner} over already")
    able = brokers.get(taker)
    if able is None or able.state != pb.ACTIVE:
        raise Conflict(f"broker {taker} is not active: start it first, it is the one that reads the WAL")
    begun = pb.Takeover(ring_id=ring_id, taker=taker, wal_path=wal_path, machine_id=able.machine_id)
    if known is not None and known.ring_id == ring_id and known.HasField("sealed_lsn"):
        begun.sealed_lsn = known.sealed_lsn
    return begun


def check_give_up(
    topics: ClusterTopics,
    brokers: Mapping[str, pb.BrokerRegistration],
    known: pb.Takeover | None,
    *,
    owner: str,
    silent_ms: int,
) -> int:
    """How many partitions lose what only the WAL of `owner` has. Raises `Conflict`."""
    rings = _rings(topics).get(owner, {})
    _check_gone(owner, brokers, rings)
    if known is not None and not known.is_done and known.taker:
        raise Conflict(f"broker {known.taker} is taking the WAL of {owner} over: nothing need be given up")
    if silent_ms < GIVE_UP_AFTER_MS:
        left_s = -(-(GIVE_UP_AFTER_MS - silent_ms) // 1000)
        raise Conflict(
            f"broker {owner} may still acknowledge records: a broker that hears no controller goes on for a minute. "
            f"Try again in {left_s} s"
        )
    return sum(rings.values())


def _check_gone(owner: str, brokers: Mapping[str, pb.BrokerRegistration], rings: Mapping[bytes, int]) -> None:
    registration = brokers.get(owner)
    if not rings and registration is None:
        raise Conflict(
            f"no broker {owner} is known, nor a partition in a WAL of it: `headrace cluster describe` lists brokers"
        )
    if not rings:
        raise Conflict(f"no partition is in a WAL of broker {owner}: object storage has everything")
    if registration is not None and registration.state != pb.FENCED:
        state = pb.BrokerState.Name(registration.state)
        raise Conflict(f"broker {owner} is {state} and reads its WAL itself: stop its process first")
