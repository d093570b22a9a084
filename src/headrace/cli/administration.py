"""Administering a node: the ports that `user`, `acl`, `quota`, `topic`, `group` and `transaction` are written against.

There are two ways to a node, Kafka's protocol and with `--api` the REST API. Both give the values that stand here and fail in the
same words, so that a command does not know which of them was taken. Each way is imported only when it is asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from headrace.cli.options import EitherWay
from headrace.errors import AlreadyExists, GroupNotFound, Invalid, NotEmpty, TopicNotFound, TransactionNotFound, suggest

if TYPE_CHECKING:  # They take time to import, and most commands want few of them.
    from headrace.broker.access.quotas import Entity, Limit
    from headrace.broker.access.rules import Rule
    from headrace.broker.access.words import Resource
    from headrace.broker.groups.reset_target import Move, Target
    from headrace.cli.exposure import Exposure

NOT_ALLOWED: Final = "not allowed to do that"
NOT_ALLOWED_ACCESS: Final = "not allowed to administer access; on the node's own machine its owner is: --local DATA_DIR"
NOBODY_IS_ASKED: Final = "this node asks nobody about access: set security.authorization.enable and start it again"
ABORT_SECONDS_MAX: Final = 10.0
"""Longest that `transaction abort` waits for an end that is under way."""
RETRY_SECONDS: Final = 0.05
NODES_DEFAULT: Final = -1
"""Of a count: the node chooses, as both ways say it."""


# -- what is shown


class ShownUser(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    mechanisms: list[str]
    iterations: int


class ShownQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A star stands for whoever has no quota of their own."""

    user: str | None
    client: str | None
    ip: str | None
    produce: float | None
    consume: float | None
    requests: float | None
    connections: float | None


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    log_start: int | None
    """None: another broker leads the partition, and the one that was asked over REST does not know."""
    end: int | None


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionState]
    config: dict[str, str]
    """Only what was set on the topic itself; the rest follows the node."""


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    replication_factor: int


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    type: str


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    """None: the topic or partition is gone, and who reads it has not noticed yet; over REST also if another broker leads it."""
    lag: int | None
    member: str | None
    client: str | None


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    type: str
    assignor: str
    members: int
    partitions: list[GroupPartition]


class TransactionRow(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDetail(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: list[str]


# -- what can be done


class Users(Protocol):
    def list(self, name: str | None = None) -> list[ShownUser]: ...

    def create(self, name: str, password: str, *, is_super: bool) -> None: ...

    def set_password(self, name: str, password: str) -> None: ...

    def delete(self, name: str) -> None: ...


class Rules(Protocol):
    def create(self, rules: "Iterable[Rule]") -> None: ...

    def find(
        self, *, principal: str | None = None, kind: "Resource | None" = None, name: str | None = None
    ) -> "list[Rule]":
        """With a name, every rule that speaks of it: also those with a prefix of it, or a star."""
        ...

    def delete(self, rules: "Iterable[Rule]") -> int:
        """Those very rules; gives how many of them there were."""
        ...


class Quotas(Protocol):
    def set(self, entity: "Entity", limits: "Mapping[Limit, float]") -> None: ...

    def remove(self, entity: "Entity") -> int:
        """All limits of somebody; gives how many there were."""
        ...

    def list(self) -> list[ShownQuota]: ...


class Topics(Protocol):
    def create_topic(
        self, name: str, *, partitions: int | None, replication_factor: int | None, config: dict[str, str]
    ) -> None:
        """None leaves a number to the node."""
        ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, total: int) -> None: ...

    def alter_config(self, name: str, *, changes: Mapping[str, str], removals: Sequence[str]) -> None: ...

    def list_topics(self) -> list[TopicSummary]: ...

    def describe_topic(self, name: str) -> TopicState: ...

    def exposure(self, name: str, *, admin: str) -> "Mapping[tuple[str, int], Exposure] | None":
        """Of partitions of this topic at least, those without any left out; None where nobody tells.

        `admin` is where the Kafka door's node has its admin door: who speaks REST is there already."""
        ...


class Groups(Protocol):
    def summaries(self) -> list[GroupSummary]: ...

    def describe(self, group: str) -> GroupState: ...

    def reset(self, group: str, topics: list[str], target: "Target", value: int, *, is_dry: bool) -> "list[Move]":
        """Where each partition goes, or with `is_dry` would."""
        ...

    def delete(self, group: str) -> None: ...


class Transactions(Protocol):
    def rows(self, *, only_open: bool) -> list[TransactionRow]: ...

    def describe(self, transactional_id: str) -> TransactionDetail: ...

    def abort(self, transactional_id: str) -> None:
        """Take the name as a new producer would: that ends what the old one left open, and fences it."""
        ...


# -- the way that was asked for


def open_users(way: EitherWay) -> Users:
    client = way.client(denial=NOT_ALLOWED_ACCESS)
    if client is not None:
        from headrace.cli.rest_access import RestUserAdmin

        return RestUserAdmin(client)
    from headrace.cli.kafka_users import UserAdmin

    return UserAdmin(way.address)


def open_rules(way: EitherWay) -> Rules:
    client = way.client(denial=NOT_ALLOWED_ACCESS)
    if client is not None:
        from headrace.cli.rest_access import RestAclAdmin

        return RestAclAdmin(client)
    from headrace.cli.kafka_acls import AclAdmin

    return AclAdmin(way.address)


def open_quotas(way: EitherWay) -> Quotas:
    client = way.client(denial=NOT_ALLOWED_ACCESS)
    if client is not None:
        from headrace.cli.rest_access import RestQuotaAdmin

        return RestQuotaAdmin(client)
    from headrace.cli.kafka_quotas import QuotaAdmin

    return QuotaAdmin(way.address)


def open_topics(way: EitherWay) -> Topics:
    client = way.client(denial=NOT_ALLOWED, is_local_too=True)
    if client is not None:
        from headrace.cli.rest_topics import RestTopicAdmin

        return RestTopicAdmin(client)
    from headrace.cli.kafka import KafkaAdmin

    return KafkaAdmin(way.bootstrap)


def open_groups(way: EitherWay) -> Groups:
    client = way.client(denial=NOT_ALLOWED, is_local_too=True)
    if client is not None:
        from headrace.cli.rest_groups import RestGroupAdmin

        return RestGroupAdmin(client)
    from headrace.cli.kafka_groups import GroupAdmin

    return GroupAdmin(way.bootstrap)


def open_transactions(way: EitherWay) -> Transactions:
    client = way.client(denial=NOT_ALLOWED, is_local_too=True)
    if client is not None:
        from headrace.cli.rest_transactions import RestTransactionAdmin

        return RestTransactionAdmin(client)
    from headrace.cli.kafka_transactions import TransactionAdmin

    return TransactionAdmin(way.bootstrap)


# -- the words of both


def user_exists(name: str) -> AlreadyExists:
    return AlreadyExists(f"there is a user {name!r} already; `headrace user password` sets another password")


def no_topic(name: str) -> TopicNotFound:
    return TopicNotFound(f"no topic {name!r}")


def no_group(name: str) -> GroupNotFound:
    return GroupNotFound(f"no group {name!r}")


def has_members(group: str) -> NotEmpty:
    return NotEmpty(f"group {group!r} has members: stop them first")


def nothing_committed(group: str) -> Invalid:
    return Invalid(f"group {group!r} has committed nothing yet; name the topics with --topic")


def no_transaction(transactional_id: str) -> TransactionNotFound:
    return TransactionNotFound(f"no transactional id {transactional_id!r}")


def check_removals(removals: Iterable[str], known: Iterable[str]) -> None:
    """A broker removes a config that does not exist without a word, so that a slip would go unnoticed."""
    from headrace.broker.topic_config import is_without_effect

    there = set(known)
    for name in removals:
        if name not in there and not is_without_effect(name):
            raise Invalid(f"unknown topic config {name!r}{suggest(name, there)}")
