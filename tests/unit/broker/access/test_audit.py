"""What the audit is told, and that it stays small however much that is."""

import asyncio
import json
from typing import Any

from tests.support.logs import NOW_MS
from tests.support.metastores import ManualClock

from headrace.broker.access.audit import BURST_MAX, EVENTS_PER_SECOND, NAME_LENGTH_MAX, PENDING_MAX, Audit, shortened
from headrace.broker.access.rules import Filter, Rule
from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.words import Operation, Principal, Resource
from headrace.control.embedded import EmbeddedMetastore

ALICE = Principal("alice")


def opened() -> tuple[Audit, ManualClock]:
    clock = ManualClock(NOW_MS)
    return Audit(clock, "/headrace/b1"), clock


def taken(audit: Audit) -> list[dict[str, Any]]:  # Any: whatever JSON has
    return [json.loads(event) for event in audit.take()]


def deny(audit: Audit, name: str = "orders") -> None:
    audit.decided(ALICE, "10.0.0.7", Operation.WRITE, Resource.TOPIC, name, is_allowed=False)


def test_an_event_says_what_who_where_and_when() -> None:
    audit, _ = opened()
    deny(audit)
    (event,) = taken(audit)
    assert event["type"] == "headrace.access.denied"
    assert (event["specversion"], event["source"]) == ("1.0", "/headrace/b1")
    assert event["time"].endswith("Z")
    assert event["data"] == {
        "principal": "User:alice",
        "host": "10.0.0.7",
        "operation": "WRITE",
        "resource": "TOPIC",
        "name": "orders",
    }
    assert audit.take() == []


def test_of_what_is_allowed_only_changes_are_noted() -> None:
    audit, _ = opened()
    for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE):
        audit.decided(ALICE, "", operation, Resource.TOPIC, "orders", is_allowed=True)
    assert [event["data"]["operation"] for event in taken(audit)] == ["DELETE"]


def test_a_flood_is_cut_and_counted() -> None:
    audit, clock = opened()
    for _ in range(BURST_MAX + 500):
        deny(audit)
    assert len(taken(audit)) == BURST_MAX
    clock.advance(1000)
    for _ in range(EVENTS_PER_SECOND + 7):
        deny(audit)
    events = taken(audit)
    assert len(events) == EVENTS_PER_SECOND
    assert events[0]["data"]["skipped"] == 500
    assert "skipped" not in events[1]["data"]
    # A change of access is not lost in it.
    audit.changed(ALICE, "", {"change": "rule added"})
    assert taken(audit)[0]["data"]["skipped"] == 7
    assert audit.skipped_total == 507


def test_memory_is_bounded() -> None:
    audit, _ = opened()
    for nth in range(PENDING_MAX + 10):
        audit.changed(ALICE, "", {"nth": nth})
    assert len(audit.take()) == PENDING_MAX
    deny(audit, "x" * 30_000)
    (event,) = taken(audit)
    assert event["data"]["skipped"] == 10
    assert len(event["data"]["name"]) == NAME_LENGTH_MAX


async def test_every_change_of_access_is_noted_with_its_author_and_without_secrets() -> None:
    audit, _ = opened()
    store = await EmbeddedMetastore.open()
    try:
        settings = SecuritySettings(authorization_enable=True, super_users=("User:root",))
        access = Access(settings, store, audit=audit)
        await access.load()
        following = asyncio.create_task(access.follow())
        root = access.guard(Principal("root"), "10.0.0.1")
        rule = Rule(resource=Resource.TOPIC, name="orders", principal="User:alice", operation=Operation.READ)
        await access.add_rules([rule], root)
        await access.add_rules([rule], root)  # It is there: nothing has changed.
        fresh = await access.users.new_verifiers("wood and water")
        await access.change_verifiers("alice", lambda _: fresh, root)
        await access.change_verifiers("alice", lambda _: {}, root)
        await access.delete_rules(Filter(name="orders"), root)
        text = b"\n".join(events := audit.take())
        assert [json.loads(event)["data"]["change"] for event in events] == [
            "rule added",
            "user created",
            "user deleted",
            "rule deleted",
        ]
        assert all(json.loads(event)["data"]["principal"] == "User:root" for event in events)
        for verifier in fresh.values():
            for secret in (verifier.salt, verifier.stored_key, verifier.server_key):
                assert secret not in text
                assert secret.hex().encode() not in text
        assert b"wood" not in text
        mallory = access.guard(Principal("mallory"), "10.0.0.9")
        assert not mallory.may(Operation.READ, Resource.TOPIC, "orders")
        assert not mallory.may(Operation.READ, Resource.TOPIC, "orders")
        assert not mallory.sees(Operation.READ, Resource.TOPIC, "other")
        assert root.may_create_topic("new")
        assert [event["type"] for event in taken(audit)] == ["headrace.access.denied", "headrace.access.allowed"]
        following.cancel()
    finally:
        await store.close()


def test_what_is_long_is_cut_and_says_so() -> None:
    assert shortened({"a": "x" * 299, "b": 7, "c": None}) == {"a": "x" * 299, "b": 7, "c": None}
    assert shortened("x" * 1000) == "x" * 300 + "… (1000 characters)"
    assert len(shortened(list(range(1000)))) == 101
    assert shortened({str(number): number for number in range(1000)})["…"] == 900
