"""A run: many random requests of one seed to both brokers, and where their answers differ."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.support.kafka_messages import SCHEMAS, class_of
from tests.support.same_as_kafka.drawing import draw_request
from tests.support.same_as_kafka.evidence import Before, state_before
from tests.support.same_as_kafka.pairing import ADMIN, CLOSED, Broker, Difference, Each, Pair, Plain, different, pause
from tests.support.same_as_kafka.world import World

from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest

SETTLED_SECONDS_MAX: Final = 1.0
APART_SECONDS_MAX: Final = 30.0
"""Where one broker alone is not ready yet: it will be, on a busy machine later."""
CONCURRENT_TRANSACTIONS: Final = 51
PASSING: Final = frozenset((5, 6, 14, 15, 16, CONCURRENT_TRANSACTIONS))
"""A leader or coordinator that is not ready, and transactions on their way to completion: asked again until it has passed."""
SHAPING: Final = frozenset(
    ("CreateTopicsRequest", "DeleteTopicsRequest", "CreatePartitionsRequest", "AlterConfigsRequest",
     "IncrementalAlterConfigsRequest", "DeleteRecordsRequest", "EndTxnRequest")
)  # fmt: skip
"""Requests whose effect Kafka's broker sees a moment after the answer."""
READING: Final = frozenset(
    ("Metadata", "Describe", "List", "Fetch", "OffsetFetch", "OffsetForLeaderEpoch", "FindCoordinator", "ApiVersions",
     "ConsumerGroupDescribe")
)  # fmt: skip
"""Requests that change nothing begin like this: a difference counts only if it stays."""
ABOUT_RIGHTS: Final = frozenset((29, 30, 31, 48, 49, 50, 51))
"""Access rules, quotas and passwords: compared by themselves (`rights`)."""
UNDRAWN: Final = frozenset((17, 36))
"""SaslHandshake and SaslAuthenticate are for listeners that ask for a login."""
FAVOURITES: Final = {
    "ProduceRequest": 30,
    "FetchRequest": 15,
    "ListOffsetsRequest": 8,
    "JoinGroupRequest": 12,
    "SyncGroupRequest": 10,
    "OffsetCommitRequest": 10,
    "OffsetFetchRequest": 8,
    "InitProducerIdRequest": 12,
    "AddPartitionsToTxnRequest": 16,
    "AddOffsetsToTxnRequest": 8,
    "TxnOffsetCommitRequest": 8,
    "EndTxnRequest": 10,
    "ConsumerGroupHeartbeatRequest": 14,
    "DescribeConfigsRequest": 6,
    "IncrementalAlterConfigsRequest": 8,
    "AlterConfigsRequest": 4,
}
"""How often more than once in each round."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A request that both brokers know, in the versions that both announce."""

    name: str
    first: int
    last: int


@dataclass(slots=True)
class Step:
    """One request and what came of it."""

    number: int
    request: Message
    version: int
    differences: list[Difference]
    ours: Plain
    theirs: Plain
    before: Before
    is_stuck: bool = False
    """Kafka alone says for half a minute that a transaction is about to end: whatever follows would differ by that."""

    def __str__(self) -> str:
        theirs = "the same" if self.theirs == self.ours else self.theirs
        return f"{self.number}: v{self.version} {self.request}\n  ours {self.ours}\n  Kafka's {theirs}"


def common_kinds(pair: Pair, *, is_about_rights: bool = False) -> list[Kind]:
    """What both brokers announce, and our schemas know."""
    ours, theirs = pair.ask(ApiVersionsRequest("test", "1"), 3)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in theirs.api_keys}  # type: ignore[union-attr]
    names = {schema.api_key: name for name, schema in SCHEMAS.items() if name.endswith("Request")}
    kinds = []
    for row in ours.api_keys:  # type: ignore[union-attr]
        is_wanted = row.api_key not in UNDRAWN and (row.api_key in ABOUT_RIGHTS) == is_about_rights
        if is_wanted and row.api_key in ranges and row.api_key in names:
            schema = SCHEMAS[names[row.api_key]]
            first = max(row.min_version, ranges[row.api_key][0], schema.versions.first)
            last = min(row.max_version, ranges[row.api_key][1], schema.versions.last)
            kinds.append(Kind(schema.name, first, last))
    return kinds


def deck(kinds: list[Kind], world: World) -> list[tuple[str, int]]:
    """Every version of every request once, and what matters most more often; shuffled."""
    cards = [(kind.name, version) for kind in kinds for version in range(kind.first, kind.last + 1)]
    for kind in kinds:
        cards += [(kind.name, world.random.randint(kind.first, kind.last)) for _ in range(FAVOURITES.get(kind.name, 0))]
    world.random.shuffle(cards)
    return cards


def run(pair: Pair, seed: int, kinds: list[Kind], *, steps_max: int | None = None) -> Iterator[Step]:
    """One round of requests in a world of its own."""
    world = World(seed)
    pair.ours.prefix = pair.theirs.prefix = f"{world.prefix}-"
    prepare(pair, world)
    for number, (name, version) in enumerate(deck(kinds, world)[:steps_max]):
        request = draw_request(name, version, world)
        step = take_step(pair, world, number, request, version)
        if step.is_stuck:
            print(f"seed {seed}: from step {number} on nothing is compared, Kafka does not end a transaction")
            return
        yield step
        if len(world.topics) < 2:
            create_topics(pair, world, [f"{world.prefix}-later-{number}"])


def take_step(pair: Pair, world: World, number: int, request: Message, version: int, *, asker: str = ADMIN) -> Step:
    name = type(request).__name__
    began = time.monotonic()
    is_reading = name.startswith(tuple(READING)) and getattr(request, "session_id", 0) == 0
    before = state_before(pair, request)
    answers = list(pair.ask(request, version, asker))
    brokers = (pair.ours, pair.theirs)
    while True:
        ours, theirs = (broker.plain(answer, version) for broker, answer in zip(brokers, answers, strict=True))
        found = list(different(name.removesuffix("Request"), version, ours, theirs))
        is_passing = [any(code in PASSING for code in error_codes(answer)) for answer in (ours, theirs)]
        patience = SETTLED_SECONDS_MAX if is_passing[0] == is_passing[1] else APART_SECONDS_MAX
        if time.monotonic() > began + patience or not (any(is_passing) or (found and is_reading)):
            break
        pause(0.05)
        for index, broker in enumerate(brokers):
            # Whoever has done what it was asked is not asked again.
            if is_reading or is_passing[index]:
                answers[index] = broker.ask(request, version, asker)
    is_stuck = [_is_ending(answer) for answer in (ours, theirs)] == [False, True]
    world.learn(request, *answers)
    if name in SHAPING:
        pause(0.1)
        refresh_topics(pair, world)
    return Step(number, request, version, found, ours, theirs, before, is_stuck)


def _is_ending(answer: Plain) -> bool:
    return CONCURRENT_TRANSACTIONS in error_codes(answer)


def error_codes(answer: Plain) -> Iterator[int]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)


# -- preparing


def prepare(pair: Pair, world: World) -> None:
    """Topics, and coordinators that have loaded."""
    create_topics(pair, world, [f"{world.prefix}-{letter}" for letter in "abc"])
    for broker in (pair.ours, pair.theirs):
        for group in [each.name for each in world.groups] + [f"{world.prefix}-nobody", ""]:
            if group:
                _until_zero(broker, FindCoordinatorRequest(group, 0), 2)
                _until_zero(broker, OffsetFetchRequest(group_id=group, topics=None), 5)
        for transactional_id in world.transactional_ids:
            _until_zero(broker, FindCoordinatorRequest(transactional_id, 1), 2)
    for transactional_id in world.transactional_ids:
        request = InitProducerIdRequest(transactional_id, 60_000)
        answers = [_until_zero(broker, request, 4) for broker in (pair.ours, pair.theirs)]
        world.learn(request, *answers)
        for broker, answer in zip((pair.ours, pair.theirs), answers, strict=True):
            broker.plain(answer, 4)


def _until_zero(broker: Any, request: Message, version: int) -> Any:
    deadline = time.monotonic() + 30
    while True:
        answer = broker.ask(request, version)
        if answer != CLOSED and not answer.error_code:
            return answer
        assert time.monotonic() < deadline, (broker.address, request, answer)
        pause(0.05)


def create_topics(pair: Pair, world: World, names: list[str]) -> None:
    rows = [CreatableTopic(name, partitions, 1, [], []) for partitions, name in enumerate(names, 1)]
    pair.ask(CreateTopicsRequest(rows, 10_000, False), 7)
    deadline = time.monotonic() + 30
    while True:
        for name in names:
            world.topics.setdefault(name, None)  # type: ignore[arg-type]  # filled in below
        if refresh_topics(pair, world) and all(world.topics.get(name) for name in names):
            return
        assert time.monotonic() < deadline, f"{names} did not come up"
        pause(0.05)


def refresh_topics(pair: Pair, world: World) -> bool:
    """What is there now, by both brokers; False while they do not agree."""
    made = [f"{world.prefix}-made-{nth}" for nth in range(6)]
    names = sorted({*world.topics, *made})
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        found = []
        for broker in (pair.ours, pair.theirs):
            answer: Any = broker.ask(request, 12)
            found.append({row.name: row for row in answer.topics if not row.error_code})
        ours, theirs = found
        if ours.keys() == theirs.keys() or time.monotonic() > deadline:
            break
        pause(0.05)
    for broker, others in ((pair.ours, theirs), (pair.theirs, ours)):
        # Where the brokers differ they go on from the same place.
        if extra := sorted((ours.keys() | theirs.keys()) - others.keys()):
            broker.ask(DeleteTopicsRequest(topic_names=extra, timeout_ms=10_000), 5)
    for name in names:
        if name in ours and name in theirs:
            ids = Each(ours[name].topic_id, theirs[name].topic_id)
            known, count = world.topics.get(name), len(ours[name].partitions)
            if known is None or (known.ids, known.partitions) != (ids, count):
                _until_led(pair.theirs, name, count)
            world.add_topic(name, ids, count)
            pair.ours.names[ids.ours] = pair.theirs.names[ids.theirs] = f"topic {name} {len(world.deleted)}"
        elif world.topics.get(name) is not None:
            world.drop_topic(name)
        else:
            world.topics.pop(name, None)
    return ours.keys() == theirs.keys()


def _until_led(broker: Broker, name: str, partitions: int) -> None:
    """Kafka names a leader a moment before it serves. A request in a fetch session cannot be sent once more for that."""
    rows = [ListOffsetsPartition(index, -1, -1) for index in range(partitions)]
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while time.monotonic() < deadline:
        answer: Any = broker.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, rows)]), 7)
        if not any(row.error_code for row in answer.topics[0].partitions):
            return
        pause(0.05)


__all__ = ["Kind", "Step", "class_of", "common_kinds", "create_topics", "deck", "prepare", "run", "take_step"]
