"""Random requests about rights, quotas and passwords: their words are few, and most of them are wrong in some place."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from tests.support.same_as_kafka.evidence import Before
from tests.support.same_as_kafka.pairing import Pair, different, pause
from tests.support.same_as_kafka.running import Kind, Step

from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.kafka.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.kafka.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from headrace.wire.kafka.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

ROUNDS: Final = 12
"""How often each version of each request comes."""
SETTLED_SECONDS: Final = 0.1
"""Kafka's broker hears of what its controller has changed."""


class Rights:
    """Names that no other seed uses, so that what one has left does not show in another."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prefix = f"r{seed}"

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def some(self, draw: Callable[[], Any], named_by: Callable[[Any], object] = repr) -> list[Any]:
        """Nothing is named twice: which of them counts is for the brokers to sort."""
        found = [draw() for _ in range(self.one_of(0, 1, 1, 2))]
        return list({repr(named_by(each)): each for each in found}.values())

    def name(self) -> str:
        return f"{self.prefix}-{self.one_of('a', 'b', 'c')}"

    # -- access rules

    def rules(self, draw: Callable[..., Any]) -> list[Any]:
        """An odd one comes alone: Kafka refuses what is beside it, too."""
        return [draw(is_odd=True)] if self.random.random() < 0.25 else self.some(draw)

    def creation(self, *, is_odd: bool = False) -> AclCreation:
        usual = not is_odd
        return AclCreation(
            resource_type=self.one_of(2, 3, 5) if usual else self.one_of(0, 1, 4, 7, 99),
            resource_name=self.name() if usual else self.one_of("", "*", "kafka-cluster"),
            resource_pattern_type=self.one_of(3, 4) if usual else self.one_of(0, 1, 2, 3, 9),
            principal=f"User:{self.name()}" if usual else self.one_of("User:*", "alice", "", ":", "User:"),
            host=self.one_of("*", "10.0.0.1") if usual else self.one_of("", "*"),
            operation=self.one_of(2, 3, 4, 8) if usual else self.one_of(0, 1, 12, 99),
            permission_type=self.one_of(2, 3) if usual else self.one_of(0, 1, 7),
        )

    def filter_of(self, kind: Any, *, is_odd: bool = False) -> Any:
        usual = not is_odd
        return kind(
            # Of its own rules: others have left theirs.
            resource_type_filter=self.one_of(1, 2, 3) if usual else self.one_of(0, 5, 99),
            resource_name_filter=self.name(),
            pattern_type_filter=self.one_of(1, 2, 3, 4) if usual else self.one_of(0, 9),
            principal_filter=self.one_of(None, f"User:{self.name()}", "User:*"),
            host_filter=self.one_of(None, "*", "10.0.0.1"),
            operation=self.one_of(1, 2, 3) if usual else self.one_of(0, 99),
            permission_type=self.one_of(1, 2, 3) if usual else self.one_of(0, 9),
        )

    # -- quotas

    def entry(self) -> EntryData:
        kinds = self.one_of(("user",), ("client-id",), ("user", "client-id"), ("ip",), ("user", "ip"), ("planet",), ())
        entity = [EntityData(kind, "10.0.0.7" if kind == "ip" else self.name()) for kind in kinds]
        keys = (
            "producer_byte_rate",
            "consumer_byte_rate",
            "request_percentage",
            "connection_creation_rate",
            "nonsense",
        )
        ops = [
            OpData(self.one_of(*keys), self.one_of(1e9, 5e8, 0.5, 0.0, -1.0), self.random.random() < 0.2)
            for _ in range(self.one_of(0, 1, 1, 2))
        ]
        return EntryData(entity, list({op.key: op for op in ops}.values()))

    def component(self) -> ComponentData:
        kind = self.one_of("user", "client-id", "user", "client-id", "planet", "")
        # All users would be those of other runs as well.
        match_type = self.one_of(0, 0, 0, 3)
        return ComponentData(kind, match_type, self.one_of(self.name(), None) if match_type else self.name())

    # -- passwords

    def passwords(self) -> AlterUserScramCredentialsRequest:
        deletions = self.some(self.deletion, lambda each: each.name)
        upsertions = self.some(self.upsertion, lambda each: each.name)
        deleted = {each.name for each in deletions}
        return AlterUserScramCredentialsRequest(deletions, [each for each in upsertions if each.name not in deleted])

    def deletion(self) -> ScramCredentialDeletion:
        return ScramCredentialDeletion(self.one_of(self.name(), self.name(), ""), self.one_of(1, 2, 2, 0, 3))

    def upsertion(self) -> ScramCredentialUpsertion:
        # Neither is ever empty: Kafka takes an empty salt, and does not know what is wrong with an empty password.
        salt, password = self.one_of(b"salt", b"pepper"), b"p" * 32
        rounds = self.one_of(4096, 4096, 8192, 1, 20_000)
        return ScramCredentialUpsertion(
            self.one_of(self.name(), self.name(), ""), self.one_of(1, 2, 2, 0, 3), rounds, salt, password
        )


_DRAWN: Final[dict[str, Callable[[Rights], Message]]] = {
    "CreateAclsRequest": lambda rights: CreateAclsRequest(rights.rules(rights.creation)),
    "DescribeAclsRequest": lambda rights: rights.filter_of(DescribeAclsRequest, is_odd=rights.random.random() < 0.25),
    "DeleteAclsRequest": lambda rights: DeleteAclsRequest(rights.rules(partial(rights.filter_of, DeleteAclsFilter))),
    "AlterClientQuotasRequest": lambda rights: AlterClientQuotasRequest(
        rights.some(rights.entry, lambda each: each.entity), validate_only=rights.random.random() < 0.1
    ),
    "DescribeClientQuotasRequest": lambda rights: DescribeClientQuotasRequest(
        [rights.component() for _ in range(rights.one_of(1, 1, 2))], strict=rights.random.random() < 0.5
    ),
    "AlterUserScramCredentialsRequest": lambda rights: rights.passwords(),
    "DescribeUserScramCredentialsRequest": lambda rights: DescribeUserScramCredentialsRequest(
        [UserName(rights.one_of(rights.name(), rights.name(), "")) for _ in range(rights.one_of(1, 1, 2))]
    ),
}
KINDS_OF_RIGHTS: Final = frozenset(_DRAWN)


def draw_about_rights(name: str, rights: Rights) -> Message:
    return _DRAWN[name](rights)


def run_rights(pair: Pair, seed: int, kinds: list[Kind]) -> Iterator[Step]:
    rights = Rights(seed)
    cards = [(kind.name, version) for kind in kinds for version in range(kind.first, kind.last + 1)] * ROUNDS
    rights.random.shuffle(cards)
    for number, (name, version) in enumerate(cards):
        request = draw_about_rights(name, rights)
        answers = pair.ask(request, version)
        ours, theirs = (
            broker.plain(answer, version) for broker, answer in zip((pair.ours, pair.theirs), answers, strict=True)
        )
        found = list(different(name.removesuffix("Request"), version, ours, theirs))
        if not name.startswith("Describe"):
            pause(SETTLED_SECONDS)
        yield Step(number, request, version, found, ours, theirs, Before())
