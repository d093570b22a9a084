"""Scripts and simulated clients for the KIP-848 group machine.

0  a join t            client a joins, wants topic t
   > a@1 0 1 2 3       answered: its epoch, and its partitions where it was told any
1  a                   a plain heartbeat
2  a owns 0 1          a heartbeat that says what it owns
2  a sees=t,u          a heartbeat with the right to describe t and u, which is all that a pattern then finds
3  c joins t           client c joins by the classic protocol; `joins t owns 0 1`: it still reads those
   > c gen 2
4  c syncs             and so on: beats, quits
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.script import play

from headrace.broker.groups.classic import events as classic
from headrace.broker.groups.classic.requests import RequestAnswer
from headrace.broker.groups.consumer import events
from headrace.broker.groups.consumer.assignors import TopicIdPartition
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.embedded import TopicIndex, read_assignment
from headrace.broker.groups.outcome import GroupError
from headrace.wire.coordination.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.wire.coordination.versioned import encode_versioned


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def shapes(**counts: int) -> dict[str, events.TopicShape]:
    return {name: events.TopicShape(topic_id=topic_id(name), partition_count=count) for name, count in counts.items()}


@dataclass
class ScriptedGroup:
    group: ConsumerGroup = field(default_factory=ConsumerGroup)
    epochs: dict[str, int] = field(default_factory=dict)
    tickets: int = 0
    rights: dict[str, frozenset[str]] = field(default_factory=dict)

    def play(self, line: str) -> list[str]:
        time, name, *words = line.split()
        options = dict(each.split("=", 1) for each in words if "=" in each)
        arguments = [each for each in words if "=" not in each]
        event = self._event(name, arguments, options)
        actions = self.group.step(event, now_ms=int(time))
        self.group.check_invariants()
        trace = []
        for action in actions:
            match action:
                case events.Answer(reply=reply):
                    trace.append(self._show(name, reply))
                case events.EpochStarted(epoch=epoch, reason=reason):
                    trace.append(f"epoch {epoch}: {reason}")
                case events.OnlyClassicLeft():
                    trace.append("only classic members are left")
                case classic.AnswerJoin() | classic.AnswerSync() | classic.AnswerHeartbeat() | classic.AnswerLeave():
                    trace.append(self._show_classic(name, action))
        if name == "state":
            trace.append(self.group.state.value)
        return trace

    def _show(self, name: str, reply: events.HeartbeatReply) -> str:
        if reply.error is not GroupError.NONE:
            return f"{name} {reply.error.name}"
        self.epochs[name] = reply.member_epoch
        if reply.assignment is None:
            return f"{name}@{reply.member_epoch}"
        return f"{name}@{reply.member_epoch} has {_show_partitions(reply.assignment) or 'nothing'}"

    def _show_classic(self, name: str, answer: RequestAnswer) -> str:
        match answer:
            case classic.AnswerJoin(reply=reply):
                self.epochs[name] = reply.generation
                return f"{name} {_show_error(reply.error) or f'gen {reply.generation}'}"
            case classic.AnswerSync(reply=reply):
                partitions = (f"{topic}:{index}" for topic, index in sorted(read_assignment(reply.assignment)))
                share = " ".join(partitions) or "nothing"
                return f"{name} {_show_error(reply.error) or f'has {share}'}"
            case classic.AnswerHeartbeat(error=error):
                return f"{name} {_show_error(error) or 'ok'}"
            case classic.AnswerLeave(replies=replies):
                return f"{name} {_show_error(replies[0].error) or 'left'}"

    def _event(self, name: str, words: list[str], options: dict[str, str]) -> events.Event:
        if name == "topics":
            return events.TopicsChanged(topics=shapes(**{key: int(count) for key, count in options.items()}))
        if name in ("tick", "state"):
            return events.Tick()
        verb, *rest = words or ["beat"]
        self.tickets += 1
        if verb in ("joins", "syncs", "beats", "quits"):
            return self._classic_event(name, verb, rest, options)
        epoch = {"join": 0, "leave": events.LEAVING, "pause": events.LEAVING_FOR_A_WHILE}.get(
            verb, self.epochs.get(name, -9)
        )
        return events.Heartbeat(
            ticket=self.tickets,
            member_id=name,
            member_epoch=int(options.get("epoch", epoch)),
            instance_id=options.get("instance"),
            rebalance_timeout_ms=int(options.get("patience", 60_000)) if verb == "join" else -1,
            topic_names=frozenset(rest) if verb in ("join", "wants") else None,
            topic_regex=options.get("regex"),
            sight=self._sight(name, options.get("sees")),
            server_assignor=options.get("assignor"),
            owned=frozenset(_partition(each) for each in rest)
            if verb == "owns"
            else (frozenset() if verb == "join" else None),
        )

    def _sight(self, name: str, text: str | None) -> events.Sight | None:
        """`sees=t,u`: rights to describe these topics and no others. As in a broker, former sights answer as of now."""
        if text is None:
            return None
        self.rights[name] = frozenset(text.split(","))
        return events.Sight((self.rights[name],), lambda topic: topic in self.rights[name])

    def _classic_event(self, name: str, verb: str, words: list[str], options: dict[str, str]) -> events.ClassicRequest:
        member_id, instance_id = options.get("id", name), options.get("instance")
        generation = int(options.get("gen", self.epochs.get(name, -9)))
        match verb:
            case "joins":
                topics, _, owned = " ".join(words).partition("owns")
                partitions = [each.rpartition(":") for each in owned.split()]
                return classic_join(
                    "" if "v4" in options else member_id,
                    topics=topics.split(),
                    owned=[(topic or "t", int(index)) for topic, _, index in partitions],
                    instance_id=instance_id,
                    names=options.get("speaks", "range").split(","),
                    must_know_member_id="v4" in options,
                    session_timeout_ms=int(options.get("session", 10_000)),
                    ticket=self.tickets,
                )
            case "syncs":
                return classic.Sync(
                    ticket=self.tickets,
                    member_id=member_id,
                    generation=generation,
                    instance_id=instance_id,
                    protocol_name=options.get("protocol"),
                )
            case "beats":
                return classic.Heartbeat(
                    ticket=self.tickets, member_id=member_id, generation=generation, instance_id=instance_id
                )
        departure = classic.Departure(member_id=member_id, instance_id=instance_id)
        return classic.Leave(ticket=self.tickets, departures=(departure,))


def classic_join(
    member_id: str,
    *,
    topics: Iterable[str],
    owned: Iterable[TopicIndex] = (),
    instance_id: str | None = None,
    names: Iterable[str] = ("range",),
    must_know_member_id: bool = False,
    session_timeout_ms: int = 10_000,
    ticket: int = 0,
) -> classic.Join:
    """The JoinGroup of a consumer, with its subscription in the bytes."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in owned:
        by_topic.setdefault(topic, []).append(index)
    subscription = ConsumerProtocolSubscription(
        topics=list(topics), owned_partitions=[TopicPartition(topic, indexes) for topic, indexes in by_topic.items()]
    )
    return classic.Join(
        ticket=ticket,
        member_id=member_id,
        instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=tuple(classic.Protocol(name=each, metadata=encode_versioned(subscription, 1)) for each in names),
        must_know_member_id=must_know_member_id,
        spare_member_id=f"{member_id or 'new'}-spare",
    )


def _show_error(error: GroupError) -> str:
    return "" if error is GroupError.NONE else error.name


def _partition(text: str) -> TopicIdPartition:
    topic, _, index = text.rpartition(":")
    return topic_id(topic or "t"), int(index)


def _show_partitions(partitions: frozenset[TopicIdPartition]) -> str:
    return " ".join(f"{topic.decode().rstrip('.')}:{index}" for topic, index in sorted(partitions))


def run(script: str, scripted: ScriptedGroup | None = None) -> str:
    return play(scripted or ScriptedGroup(), script)


@dataclass
class SimulatedClient:
    """Behaves as a real client: drops what it is told to drop, takes what it is given, then says what it owns."""

    name: str
    topics: frozenset[str]
    epoch: int = 0
    owns: set[TopicIdPartition] = field(default_factory=set)
    must_tell: bool = True
    has_lost: bool = False
    """An answer did not arrive: the next request says everything, and is told everything."""

    @property
    def partitions(self) -> set[TopicIdPartition]:
        return self.owns

    def beat(self, ticket: int) -> events.Heartbeat:
        is_full = self.epoch == 0 or self.has_lost
        return events.Heartbeat(
            ticket=ticket,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if is_full else -1,
            topic_names=self.topics if is_full else None,
            owned=frozenset(self.owns) if is_full or self.must_tell else None,
        )

    def hear(self, reply: events.HeartbeatReply) -> None:
        self.has_lost = False
        if reply.error is not GroupError.NONE:
            assert reply.error in (GroupError.UNKNOWN_MEMBER_ID, GroupError.FENCED_MEMBER_EPOCH), reply
            self.epoch = 0
            self.owns.clear()
            self.must_tell = True
            return
        self.epoch = reply.member_epoch
        self.must_tell = reply.assignment is not None and self.owns != reply.assignment
        if reply.assignment is not None:
            self.owns = set(reply.assignment)


@dataclass
class SimulatedClassicClient:
    """A member that speaks the classic protocol inside a KIP-848 group, one request a turn.

    An eager one lets go of everything before it joins; a cooperative one goes on reading, and joins once more after
    it has let go of what it lost.
    """

    name: str
    topics: frozenset[str]
    is_cooperative: bool
    generation: int = -1
    owns: set[TopicIndex] = field(default_factory=set)
    must_join: bool = True
    must_sync: bool = False

    @property
    def partitions(self) -> set[TopicIdPartition]:
        return {(topic_id(topic), index) for topic, index in self.owns}

    def request(self) -> events.ClassicRequest:
        if self.must_join:
            if not self.is_cooperative:
                self.owns.clear()
            return classic_join(self.name, topics=self.topics, owned=self.owns)
        if self.must_sync:
            return classic.Sync(member_id=self.name, generation=self.generation)
        return classic.Heartbeat(member_id=self.name, generation=self.generation)

    def hear(self, answer: RequestAnswer) -> None:
        match answer:
            case classic.AnswerJoin(reply=reply):
                assert reply.error is GroupError.NONE, reply
                self.generation = reply.generation
                self.must_join, self.must_sync = False, True
            case classic.AnswerSync(reply=reply):
                self._take(reply)
            case classic.AnswerHeartbeat(error=error):
                self.must_join = error is not GroupError.NONE
                assert error in (GroupError.NONE, GroupError.REBALANCE_IN_PROGRESS, GroupError.ILLEGAL_GENERATION)

    def _take(self, reply: classic.SyncReply) -> None:
        if reply.error is not GroupError.NONE:
            assert reply.error in (GroupError.REBALANCE_IN_PROGRESS, GroupError.ILLEGAL_GENERATION), reply
            self.must_join = True
            return
        share = set(read_assignment(reply.assignment))
        self.must_sync = False
        self.must_join = bool(self.owns - share)
        self.owns = share


def read_by_more_than_one(clients: Iterable[SimulatedClient | SimulatedClassicClient]) -> set[TopicIdPartition]:
    readers = Counter(partition for client in clients for partition in client.partitions)
    return {partition for partition, count in readers.items() if count > 1}
