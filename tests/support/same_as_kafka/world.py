"""What one run knows: names in use, and the ids that both brokers have given out for them.

Requests are drawn around a `Focus`: one topic, one group, one producer, so that their fields mostly fit together. Now and
then a value is taken from elsewhere: that is how requests become illegal.
"""

import random
import time
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.same_as_kafka.pairing import NO_ID, Each

from headrace.wire.kafka.message import Message

ODD: Final = 0.08
"""How often a value is one that does not fit."""


@dataclass(slots=True)
class KnownTopic:
    name: str
    ids: Each
    partitions: int


@dataclass(slots=True)
class KnownMember:
    ids: Each
    generation: Each
    instance_id: str | None = None
    assigned: Any = None


@dataclass(slots=True)
class KnownGroup:
    name: str
    is_consumer: bool
    members: list[KnownMember] = field(default_factory=list)


@dataclass(slots=True)
class KnownProducer:
    transactional_id: str | None
    ids: Each
    epochs: Each
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class KnownSession:
    """A fetch session that both brokers keep."""

    ids: Each
    epoch: int
    """That of the next request."""


@dataclass(slots=True)
class Focus:
    topic: KnownTopic
    group: KnownGroup
    member: KnownMember | None
    producer: KnownProducer | None


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.prefix = f"s{seed}"
        self.topics: dict[str, KnownTopic] = {}
        self.deleted: list[KnownTopic] = []
        self.groups = [KnownGroup(f"{self.prefix}-classic-{nth}", is_consumer=False) for nth in range(2)]
        self.groups += [KnownGroup(f"{self.prefix}-consumer-{nth}", is_consumer=True) for nth in range(2)]
        self.transactional_ids = [f"{self.prefix}-transactions-{nth}" for nth in range(2)]
        self.producers: list[KnownProducer] = []
        self.sessions: list[KnownSession] = []
        self.sent: dict[tuple[str, int], tuple[KnownProducer, int]] = {}
        """Signed batches of the last produce: who sent each, and with which sequence."""
        self.focus: Focus
        self.now_ms = time.time_ns() // 1_000_000

    def refocus(self) -> None:
        group = self.random.choice(self.groups)
        self.focus = Focus(
            topic=self.random.choice(list(self.topics.values())),
            group=group,
            member=self.random.choice(group.members) if group.members else None,
            producer=self.random.choice(self.producers) if self.producers else None,
        )

    def is_odd(self, how_often: float = ODD) -> bool:
        return self.random.random() < how_often

    # -- names

    def topic_name(self) -> str:
        if self.is_odd():
            gone = [each.name for each in self.deleted]
            return self.random.choice(["nowhere", "", "bad name", ".", "x" * 250, *gone])
        if self.is_odd(0.2):
            return self.random.choice(list(self.topics))
        return self.focus.topic.name

    def topic_id(self) -> Any:
        if self.is_odd():
            return self.random.choice([NO_ID, bytes(range(16)), *(each.ids for each in self.deleted)])
        return self.focus.topic.ids

    def partition(self) -> int:
        if self.is_odd():
            return self.random.choice([-1, 99, self.focus.topic.partitions])
        return self.random.randrange(self.focus.topic.partitions)

    def group_name(self) -> str:
        if self.is_odd():
            return self.random.choice(["", f"{self.prefix}-nobody"])
        return self.focus.group.name

    def member_id(self) -> Any:
        if self.focus.member is None or self.is_odd():
            return self.random.choice(["", "stranger"])
        return self.focus.member.ids

    def generation(self) -> Any:
        if self.focus.member is None or self.is_odd():
            return self.random.choice([-1, 0, 70, 77])  # None that a member has on one of the brokers.
        return self.focus.member.generation

    def instance_id(self) -> str | None:
        return None if self.focus.member is None else self.focus.member.instance_id

    def transactional_id(self) -> str:
        if self.is_odd():
            return self.random.choice(["", f"{self.prefix}-nobody"])
        if self.focus.producer is not None and self.focus.producer.transactional_id is not None:
            return self.focus.producer.transactional_id
        return self.random.choice(self.transactional_ids)

    def producer_id(self) -> Any:
        if self.focus.producer is None or self.is_odd():
            return self.random.choice([-1, 999_999])
        return self.focus.producer.ids

    def producer_epoch(self) -> Any:
        if self.focus.producer is None or self.is_odd(0.04):
            return self.random.choice([-1, 0, 77])
        epochs = self.focus.producer.epochs
        return Each(epochs.ours - 1, epochs.theirs - 1) if self.is_odd(0.06) else epochs

    # -- learning

    def add_topic(self, name: str, ids: Each, partitions: int) -> None:
        self.topics[name] = KnownTopic(name, ids, partitions)

    def drop_topic(self, name: str) -> None:
        if (known := self.topics.pop(name, None)) is not None:
            self.deleted.append(known)

    def learn(self, request: Message, ours: Any, theirs: Any) -> None:
        """Take over what both brokers have answered without an error."""
        learn = getattr(self, f"_learn_{type(request).__name__}", None)
        if learn is not None and not isinstance(ours, str) and not isinstance(theirs, str):
            learn(request, ours, theirs)

    def _learn_JoinGroupRequest(self, request: Any, ours: Any, theirs: Any) -> None:  # named by request
        group = next((each for each in self.groups if each.name == request.group_id), None)
        if group is None or ours.error_code != theirs.error_code or ours.error_code not in (0, 79):
            return
        ids, generation = Each(ours.member_id, theirs.member_id), Each(ours.generation_id, theirs.generation_id)
        group.members = [KnownMember(ids, generation, request.group_instance_id)]

    def _learn_ConsumerGroupHeartbeatRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        group = next((each for each in self.groups if each.name == request.group_id), None)
        if group is None or ours.error_code or theirs.error_code:
            return
        if ours.member_epoch < 0:
            group.members = []
            return
        known = KnownMember(
            Each(ours.member_id or request.member_id, theirs.member_id or request.member_id),
            Each(ours.member_epoch, theirs.member_epoch),
            request.instance_id,
        )
        group.members = [known]

    def _learn_LeaveGroupRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        if ours.error_code or theirs.error_code:
            return
        gone = [request.member_id]
        if request.members:
            rows = zip(request.members, ours.members, theirs.members, strict=True)
            gone = [asked.member_id for asked, one, other in rows if not one.error_code and not other.error_code]
        for group in self.groups:
            if group.name == request.group_id:
                group.members = [each for each in group.members if each.ids not in gone]

    def _learn_InitProducerIdRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        if ours.error_code or theirs.error_code:
            return
        found = KnownProducer(
            request.transactional_id,
            Each(ours.producer_id, theirs.producer_id),
            Each(ours.producer_epoch, theirs.producer_epoch),
        )
        same = [
            each
            for each in self.producers
            if found.transactional_id is not None and each.transactional_id == found.transactional_id
        ]
        for each in same:
            self.producers.remove(each)
        self.producers = [*self.producers[-4:], found]

    def _learn_ProduceRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        """What both have refused is sent again by its sequence: a producer leaves no gap."""
        for asked, our, their in zip(request.topic_data, ours.responses, theirs.responses, strict=False):
            for row, one, other in zip(
                asked.partition_data, our.partition_responses, their.partition_responses, strict=False
            ):
                sent = self.sent.get((asked.name, row.index))
                if sent is not None and one.error_code and other.error_code:
                    producer, sequence = sent
                    producer.sequences[asked.name, row.index] = sequence

    def _learn_FetchRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        known = next((each for each in self.sessions if each.ids == request.session_id), None)
        if known is not None and request.session_epoch == -1:
            self.sessions.remove(known)
        if ours.error_code or theirs.error_code or not (ours.session_id and theirs.session_id):
            return
        if known is None:
            self.sessions = [*self.sessions[-2:], KnownSession(Each(ours.session_id, theirs.session_id), 1)]
        else:
            known.epoch += 1

    def _learn_EndTxnRequest(self, request: Any, ours: Any, theirs: Any) -> None:
        if ours.error_code or theirs.error_code or ours.producer_id < 0 or theirs.producer_id < 0:
            return
        for each in self.producers:
            if each.transactional_id == request.transactional_id:
                if each.epochs != Each(ours.producer_epoch, theirs.producer_epoch):
                    each.sequences.clear()
                each.ids = Each(ours.producer_id, theirs.producer_id)
                each.epochs = Each(ours.producer_epoch, theirs.producer_epoch)
