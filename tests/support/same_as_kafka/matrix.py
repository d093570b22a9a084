"""Random access rules, and under them random requests of every kind by users whom they bind.

Each hand of rules holds for a few requests. Some hands allow everything but for a few denials, so that groups and
transactions come along; others allow a little. Both brokers have the same rules before anybody asks.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.support.same_as_kafka.drawing import draw_request
from tests.support.same_as_kafka.pairing import Broker, Pair, pause
from tests.support.same_as_kafka.rights import KINDS_OF_RIGHTS, Rights, draw_about_rights
from tests.support.same_as_kafka.running import Kind, Step, create_topics, deck, prepare, take_step
from tests.support.same_as_kafka.world import KnownSession, World

from headrace.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest

USERS: Final = ("alice", "bob")
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL: Final = 2
OPERATIONS: Final = {
    TOPIC: (2, 3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (2, 3, 6, 8, 10, 11),
    CLUSTER: (2, 5, 6, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (2, 4, 8),
}
HOSTS: Final = ("*", "*", "*", "127.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.0/8")
"""No network that the client is in: it is one for headrace, and a text that matches nobody for Kafka."""
_INSTALLED_SECONDS_MAX: Final = 30.0
_ANY: Final = 1


@dataclass(frozen=True, slots=True)
class RuledStep:
    """A request, who asked, and under which rules."""

    step: Step
    asker: str
    rules: list[AclCreation]

    def __str__(self) -> str:
        shown = "; ".join(_shown(rule) for rule in self.rules)
        return f"{self.asker} under [{shown}]\n{self.step}"


def _shown(rule: AclCreation) -> str:
    what = "allows" if rule.permission_type == ALLOW else "denies"
    pattern = "..." if rule.resource_pattern_type == PREFIXED else ""
    resource = f"{rule.resource_type}:{rule.resource_name}{pattern}"
    return f"{what} {rule.principal} from {rule.host} {rule.operation} on {resource}"


class Rules:
    """Draws hands of rules about the names of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"rules {world.prefix}")

    def hand(self) -> list[AclCreation]:
        kind = self._random.random()
        if kind < 0.1:
            return []
        if kind < 0.5:
            everything = [self._rule(each, "*", LITERAL, ALL, ALLOW) for each in (TOPIC, GROUP, TRANSACTIONAL_ID)]
            everything.append(self._rule(CLUSTER, "kafka-cluster", LITERAL, ALL, ALLOW))
            return _once(everything + [self._any(DENY) for _ in range(self._random.randint(0, 3))])
        some = [self._any(ALLOW) for _ in range(self._random.randint(1, 10))]
        return _once(some + [self._any(DENY) for _ in range(self._random.choice((0, 0, 1, 2)))])

    def _any(self, permission: int) -> AclCreation:
        kind = self._random.choice((TOPIC, TOPIC, GROUP, GROUP, CLUSTER, TRANSACTIONAL_ID))
        name, pattern = self._name(kind)
        rule = self._rule(kind, name, pattern, self._random.choice(OPERATIONS[kind]), permission)
        principal = self._random.choice((rule.principal, rule.principal, "User:alice", "User:bob", "User:zoe"))
        return _changed(rule, principal=principal, host=self._random.choice(HOSTS))

    def _name(self, kind: int) -> tuple[str, int]:
        if kind == CLUSTER:
            return "kafka-cluster", LITERAL
        prefix = self._world.prefix
        if kind == TOPIC:
            names = [*self._world.topics, f"{prefix}-made-0", f"{prefix}-made-1", "nowhere"]
            prefixes = [f"{prefix}-made", f"{prefix}-", "nowh", "other"]
        elif kind == GROUP:
            names = [*(group.name for group in self._world.groups), f"{prefix}-nobody"]
            prefixes = [f"{prefix}-classic", f"{prefix}-consumer", "other"]
        else:
            names = [*self._world.transactional_ids, f"{prefix}-nobody"]
            prefixes = [f"{prefix}-trans", "other"]
        return self._random.choice(
            [("*", LITERAL), (self._random.choice(names), LITERAL), (self._random.choice(names), LITERAL),
             (self._random.choice(prefixes), PREFIXED)]
        )  # fmt: skip

    def _rule(self, kind: int, name: str, pattern: int, operation: int, permission: int) -> AclCreation:
        return AclCreation(kind, name, pattern, "User:*", "*", operation, permission)


def _changed(rule: AclCreation, **fields: Any) -> AclCreation:
    return AclCreation(**{name: fields.get(name, getattr(rule, name)) for name in rule.__struct_fields__})


def _once(rules: list[AclCreation]) -> list[AclCreation]:
    return list({repr(rule): rule for rule in rules}.values())


def run_matrix(
    pair: Pair, seed: int, kinds: list[Kind], *, steps_max: int | None = None, steps_a_hand: int = 3
) -> Iterator[RuledStep]:
    """Every version of every kind, by users who may do some of it."""
    world, rights = World(seed), Rights(seed)
    pair.ours.prefix = pair.theirs.prefix = f"{world.prefix}-"
    prepare(pair, world)
    rules = Rules(world)
    hand: list[AclCreation] = []
    sessions: dict[str, list[KnownSession]] = {}
    for number, (name, version) in enumerate(deck(kinds, world)[:steps_max]):
        if number % steps_a_hand == 0:
            hand = rules.hand()
            for broker in (pair.ours, pair.theirs):
                install(broker, hand)
        asker = world.random.choice(USERS)
        # One of somebody else is nobody's for headrace, and anybody's for Kafka.
        world.sessions = sessions.get(asker, [])
        if name in KINDS_OF_RIGHTS:
            request = draw_about_rights(name, rights)
        else:
            request = draw_request(name, version, world)
        step = take_step(pair, world, number, request, version, asker=asker)
        sessions[asker] = world.sessions
        yield RuledStep(replace(step), asker, hand)
        if name in ("CreateAclsRequest", "DeleteAclsRequest"):
            for broker in (pair.ours, pair.theirs):
                install(broker, hand)
        if len(world.topics) < 2:
            create_topics(pair, world, [f"{world.prefix}-later-{number}"])


def install(broker: Broker, rules: list[AclCreation]) -> None:
    """These rules and no other, where they are asked for."""
    gone: Any = broker.ask(DeleteAclsRequest([DeleteAclsFilter(_ANY, None, _ANY, None, None, _ANY, _ANY)]), 3)
    assert gone.filter_results[0].error_code == 0, gone.filter_results[0].error_message
    if rules:
        made: Any = broker.ask(CreateAclsRequest(rules), 3)
        assert {row.error_code for row in made.results} == {0}, made.results
    wanted = {tuple(getattr(rule, name) for name in rule.__struct_fields__) for rule in rules}
    deadline = time.monotonic() + _INSTALLED_SECONDS_MAX
    while True:
        shown: Any = broker.ask(DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY), 3)
        if wanted == {
            (row.resource_type, row.resource_name, row.pattern_type, acl.principal, acl.host, acl.operation, permission)
            for row in shown.resources
            for acl in row.acls
            for permission in [acl.permission_type]
        }:
            return
        assert time.monotonic() < deadline, f"{broker.address} does not have {len(rules)} rules"
        pause(0.005)
