"""Scripts and simulated clients for the KIP-848 group machine.

0  a join t            client a joins, wants topic t
   > a@1 0 1 2 3       answered: its epoch, and its partitions where it was told any
1  a                   a plain heartbeat
2  a owns 0 1          a heartbeat that says what it owns
"""

from dataclasses import dataclass, field

from headrace.broker.groups.consumer import events
from headrace.broker.groups.consumer.assignors import Slot
from headrace.broker.groups.consumer.machine import ConsumerGroup
from headrace.broker.groups.outcome import GroupError


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def shapes(**counts: int) -> dict[str, events.TopicShape]:
    return {name: events.TopicShape(topic_id=topic_id(name), partition_count=count) for name, count in counts.items()}


@dataclass
class ScriptedGroup:
    group: ConsumerGroup = field(default_factory=ConsumerGroup)
    epochs: dict[str, int] = field(default_factory=dict)
    tickets: int = 0

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
        if name == "state":
            trace.append(self.group.state.value)
        return trace

    def _show(self, name: str, reply: events.HeartbeatReply) -> str:
        if reply.error is not GroupError.NONE:
            return f"{name} {reply.error.name}"
        self.epochs[name] = reply.member_epoch
        if reply.assignment is None:
            return f"{name}@{reply.member_epoch}"
        return f"{name}@{reply.member_epoch} has {_show_slots(reply.assignment) or 'nothing'}"

    def _event(self, name: str, words: list[str], options: dict[str, str]) -> events.Event:
        if name == "topics":
            return events.TopicsChanged(topics=shapes(**{key: int(count) for key, count in options.items()}))
        if name in ("tick", "state"):
            return events.Tick()
        verb, *rest = words or ["beat"]
        self.tickets += 1
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
            server_assignor=options.get("assignor"),
            owned=frozenset(_slot(each) for each in rest)
            if verb == "owns"
            else (frozenset() if verb == "join" else None),
        )


def _slot(text: str) -> Slot:
    topic, _, index = text.rpartition(":")
    return topic_id(topic or "t"), int(index)


def _show_slots(slots: frozenset[Slot]) -> str:
    return " ".join(f"{topic.decode().rstrip('.')}:{index}" for topic, index in sorted(slots))


def run(script: str, scripted: ScriptedGroup | None = None) -> str:
    scripted = scripted or ScriptedGroup()
    lines: list[str] = []
    for line in script.strip().splitlines():
        line = line.strip()
        if not line or line.startswith((">", "#")):
            continue
        lines.append(line)
        lines += [f"  > {each}" for each in scripted.play(line)]
    return "\n".join(lines)


def expected(script: str) -> str:
    lines = [line.strip() for line in script.strip().splitlines()]
    return "\n".join(f"  {line}" if line.startswith(">") else line for line in lines if line and line[0] != "#")


@dataclass
class SimulatedClient:
    """Behaves as a real client: drops what it is told to drop, takes what it is given, then says what it owns."""

    name: str
    topics: frozenset[str]
    epoch: int = 0
    owns: set[Slot] = field(default_factory=set)
    must_tell: bool = True
    has_lost: bool = False
    """An answer did not arrive: the next request says everything, and is told everything."""

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
