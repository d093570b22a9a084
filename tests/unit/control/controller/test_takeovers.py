"""Whose WAL is taken over, and by whom."""

from collections.abc import Mapping

from tests.unit.control.controller.test_machine import topics

from headrace.control import values_pb2 as pb
from headrace.control.controller.takeovers import Wanted, wanted

RING = b"r" * 16
OTHER = b"o" * 16


def broker(state: "pb.BrokerState.ValueType", machine: str = "m") -> pb.BrokerRegistration:
    return pb.BrokerRegistration(state=state, machine_id=machine, wal_path=f"/{machine}/wal/ring", ring_id=RING)


def decided(
    brokers: Mapping[str, pb.BrokerRegistration],
    known: Mapping[str, pb.Takeover] | None = None,
    *,
    leader: str = "a",
    ring_id: bytes = RING,
) -> list[Wanted]:
    return list(wanted(topics({"t": [leader]}, durability="wal", ring_id=ring_id), brokers, known or {}))


def test_the_wal_of_a_fenced_broker_is_taken_over_by_one_of_its_machine() -> None:
    brokers = {"a": broker(pb.FENCED), "b": broker(pb.ACTIVE, "other"), "c": broker(pb.ACTIVE)}
    (begun,) = decided(brokers)
    assert (begun.owner, begun.value.taker, begun.value.ring_id, begun.is_new) == ("a", "c", RING, True)
    assert begun.value.wal_path == "/m/wal/ring"


def test_a_broker_that_may_still_read_its_own_wal_keeps_it() -> None:
    for state in (pb.ACTIVE, pb.STARTING, pb.DRAINING):
        assert decided({"a": broker(state), "b": broker(pb.ACTIVE)}) == []
    assert decided({"b": broker(pb.ACTIVE)}) == []


def test_nobody_takes_over_what_is_in_no_wal_or_what_nobody_can_read() -> None:
    assert decided({"a": broker(pb.FENCED), "b": broker(pb.ACTIVE)}, ring_id=b"") == []
    assert decided({"a": broker(pb.FENCED), "b": broker(pb.ACTIVE, "other")}) == []
    assert decided({"a": broker(pb.FENCED, ""), "b": broker(pb.ACTIVE, "")}) == []
    assert decided({"a": broker(pb.FENCED), "b": broker(pb.STARTING)}) == []


def under_way(taker: str, *, ring_id: bytes = RING, refused_by: tuple[str, ...] = ()) -> dict[str, pb.Takeover]:
    return {"a": pb.Takeover(ring_id=ring_id, taker=taker, machine_id="m", sealed_lsn=7, refused_by=refused_by)}


def test_a_taker_that_is_gone_is_replaced_and_what_it_found_out_stays() -> None:
    brokers = {"a": broker(pb.FENCED), "b": broker(pb.FENCED), "c": broker(pb.ACTIVE)}
    assert decided({**brokers, "b": broker(pb.ACTIVE)}, under_way("b")) == []
    (changed,) = decided(brokers, under_way("b"))
    assert (changed.value.taker, changed.value.sealed_lsn, changed.is_new) == ("c", 7, False)


def test_one_that_cannot_read_it_is_replaced_and_its_owner_is_the_last_to_be_asked() -> None:
    brokers = {"a": broker(pb.FENCED), "b": broker(pb.ACTIVE)}
    (changed,) = decided(brokers, under_way("b", refused_by=("b",)))
    assert changed.value.taker == ""
    back = {**brokers, "a": broker(pb.ACTIVE)}
    (changed,) = decided(back, under_way("", refused_by=("b",)))
    assert changed.value.taker == "a"
    (changed,) = decided(back, under_way("a", refused_by=("b", "a")))
    assert changed.value.is_done


def test_it_is_done_when_no_partition_is_in_that_wal_any_more() -> None:
    brokers = {"a": broker(pb.FENCED), "b": broker(pb.ACTIVE)}
    (changed,) = decided(brokers, under_way("b", ring_id=OTHER))
    assert changed.value.is_done
    done = under_way("b", ring_id=OTHER)
    done["a"].is_done = True
    (begun,) = decided(brokers, done)
    assert (begun.value.ring_id, begun.is_new) == (RING, True)
