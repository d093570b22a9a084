"""The access service over a real metastore: what is kept, what is followed, and what is not understood."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from headrace.broker.access.rules import Rule
from headrace.broker.access.scram import Verifier
from headrace.broker.access.service import OWNER, Access, everything_for
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.stored import encode_rule
from headrace.broker.access.words import Operation, Pattern, Permission, Principal, Resource
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Delete, Put, only
from headrace.errors import Invalid
from headrace.telemetry.problems import Problems

ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root")
STRANGE = keys.access_rule("strange")


class Node:
    def __init__(self, store: EmbeddedMetastore) -> None:
        self.store = store
        self.problems = Problems()
        settings = SecuritySettings(authorization_enable=True, super_users=("User:root",))
        self.access = Access(settings, store, problems=self.problems)

    async def write(self, path: str, value: bytes | None) -> None:
        """As another broker does; heard of when this returns."""
        heard = asyncio.Event()
        self.access.on_change.append(heard.set)
        await self.store.txn((), (Delete(only(path)) if value is None else Put(path, value),))
        await asyncio.wait_for(heard.wait(), 10)
        self.access.on_change.remove(heard.set)

    def may(self, who: Principal, operation: Operation = Operation.READ, name: str = "orders") -> bool:
        return self.access.may(who, "10.0.0.1", operation, Resource.TOPIC, name)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    store = await EmbeddedMetastore.open()
    made = Node(store)
    await made.access.load()
    following = asyncio.create_task(made.access.follow())
    for who in (ALICE, BOB):
        await made.access.add_rules(everything_for(who))
    yield made
    following.cancel()
    await store.close()


def stored(**changes: object) -> bytes:
    rule = Rule(
        resource=Resource.TOPIC,
        name="secret",
        principal="User:alice",
        operation=Operation.READ,
        permission=Permission.DENY,
    )
    message = pb.AccessRule.FromString(encode_rule(rule))
    for name, value in changes.items():
        setattr(message, name, value)
    return values.encode(message)


NEWER_FIELD = b"\xf2\x3f\x03new"
"""Field 1022 of a message, which no version has."""


@pytest.mark.parametrize(
    ("value", "denied_resources"),
    [
        (stored(pattern_type=9), {Resource.TOPIC}),
        (stored(operation=99), {Resource.TOPIC}),
        (stored(permission=7), {Resource.TOPIC}),
        (stored() + NEWER_FIELD, {Resource.TOPIC}),
        (stored(resource_type=77), set(Resource)),
    ],
    ids=["pattern", "operation", "permission", "field", "resource"],
)
async def test_a_denial_that_is_not_understood_denies_all_it_could_mean(
    node: Node, value: bytes, denied_resources: set[Resource]
) -> None:
    assert node.may(ALICE)
    await node.write(STRANGE, value)
    asked = {each: node.access.may(ALICE, "10.0.0.1", Operation.READ, each, "any") for each in Resource}
    allowed_before = {Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID}
    assert {each for each, is_allowed in asked.items() if is_allowed} == allowed_before - denied_resources
    assert not node.access.may_any(ALICE, "10.0.0.1", Operation.WRITE, Resource.TOPIC)
    assert node.may(BOB)
    assert node.may(ROOT)
    assert node.may(OWNER)
    assert STRANGE in " ".join(node.problems.standing())
    # The way on: the version that wrote it takes it away, or writes what we can read.
    await node.write(STRANGE, stored())
    assert node.may(ALICE)
    assert not node.may(ALICE, name="secret")
    assert not node.problems.standing()


async def test_a_rule_of_broken_bytes_denies_everything_to_everybody(node: Node) -> None:
    await node.write(STRANGE, b"\xff\xff\xff")
    assert not node.may(ALICE)
    assert not node.may(BOB)
    assert node.may(ROOT)
    await node.write(STRANGE, None)
    assert node.may(ALICE)
    assert not node.problems.standing()


async def test_an_allowance_that_is_not_understood_allows_nothing(node: Node) -> None:
    carol = Principal("carol")
    narrowed = stored(principal="User:carol", permission=int(Permission.ALLOW)) + NEWER_FIELD
    await node.write(STRANGE, narrowed)
    assert not node.may(carol, name="secret")
    assert node.may(ALICE)
    assert "allows nothing" in node.problems.standing()[0]


async def test_two_rules_that_are_not_understood_hold_each_by_itself(node: Node) -> None:
    other = keys.access_rule("other")
    await node.write(STRANGE, stored(operation=99))
    await node.write(other, stored(operation=98))
    real = Rule(
        resource=Resource.TOPIC, name="*", principal="User:alice", operation=Operation.ALL, permission=Permission.DENY
    )
    await node.access.add_rules([real])
    for path in (STRANGE, other, keys.access_rule(real.digest)):
        assert not node.may(ALICE)
        await node.write(path, None)
    assert node.may(ALICE)


async def test_a_user_that_is_not_understood_cannot_log_in_and_is_not_overwritten(node: Node) -> None:
    verifiers = await node.access.users.new_verifiers("wood and water")
    await node.access.change_verifiers("alice", lambda _: verifiers)
    item = await node.store.get(keys.user("alice"))
    assert item is not None
    for value in (item.value + NEWER_FIELD, b"\xff\xff\xff"):
        await node.write(keys.user("alice"), value)
        assert not node.access.users.verifiers("alice")
        with pytest.raises(Invalid):
            await node.access.change_verifiers("alice", lambda _: verifiers)
        # What comes after it is heard of all the same.
        await node.write(keys.access_rule("later"), stored(pattern_type=int(Pattern.PREFIXED)))
        assert not node.may(ALICE, name="secret")
        assert "'alice' cannot log in" in " ".join(node.problems.standing())
        await node.write(keys.access_rule("later"), None)
    await node.write(keys.user("alice"), item.value)
    assert node.access.users.verifiers("alice") == verifiers
    assert not node.problems.standing()


async def test_verifiers_that_two_administrators_set_at_once_are_both_kept(node: Node) -> None:
    """One sets the password of one mechanism, one that of the other: neither is lost."""
    other = Access(SecuritySettings(authorization_enable=True), node.store)
    await other.load()
    following = asyncio.create_task(other.follow())
    made = await node.access.users.new_verifiers("wood and water")

    def setting(access: Access, mechanism: str) -> "asyncio.Task[None]":
        def change(before: Mapping[str, Verifier]) -> Mapping[str, Verifier]:
            return {**before, mechanism: made[mechanism]}

        return asyncio.create_task(access.change_verifiers("alice", change))

    await asyncio.gather(setting(node.access, "SCRAM-SHA-256"), setting(other, "SCRAM-SHA-512"))
    item = await node.store.get(keys.user("alice"))
    assert item is not None
    assert set(values.decode(pb.User, item.value).verifiers) == set(made)
    following.cancel()
