"""Scripts for the classic group machine.

0     join a                     time in ms, verb, member or client name, options
      > parked                   what the machine answered, stored or announced
"""

from dataclasses import dataclass, field

from tests.support.script import play

from headrace.broker.groups.classic import events
from headrace.broker.groups.classic.machine import ClassicGroup
from headrace.broker.groups.classic.settings import ClassicSettings
from headrace.broker.groups.outcome import GroupError


@dataclass
class ScriptedGroup:
    group: ClassicGroup = field(default_factory=ClassicGroup)
    stores: bool = True
    """Report every snapshot as durable at once; otherwise the script says `stored` or `lost`."""
    names: dict[int, str] = field(default_factory=dict)
    spares: dict[str, int] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)

    def play(self, line: str) -> list[str]:
        time, verb, *words = line.split()
        now_ms = int(time)
        arguments = [each for each in words if "=" not in each]
        options = dict(each.split("=", 1) for each in words if "=" in each)
        event = self._event(verb, arguments, options)
        actions = self.group.step(event, now_ms=now_ms)
        self._count_answers(actions)
        trace = [self._show(action) for action in actions]
        for action in actions if self.stores else []:
            if isinstance(action, events.StoreGroup):
                done = self.group.step(events.Stored(generation=action.snapshot.generation), now_ms=now_ms)
                self._count_answers(done)
                trace += [self._show(each) for each in done]
        self.group.check_invariants()
        if not actions and verb in ("join", "sync"):
            trace.append("parked")
        return trace

    def _count_answers(self, actions: list[events.Action]) -> None:
        for action in actions:
            if isinstance(action, events.AnswerJoin | events.AnswerSync | events.AnswerHeartbeat | events.AnswerLeave):
                assert action.ticket not in self.answered, "answered twice"
                self.answered.append(action.ticket)

    def _ticket(self, name: str) -> int:
        ticket = len(self.names) + 1
        self.names[ticket] = name
        return ticket

    def _event(self, verb: str, arguments: list[str], options: dict[str, str]) -> events.Event:
        name = arguments[0] if arguments else ""
        match verb:
            case "join":
                return self._join(name, options)
            case "sync":
                shares = dict(each.split(":") for each in arguments[1:])
                return events.Sync(
                    ticket=self._ticket(name),
                    member_id=name,
                    generation=int(options.get("gen", self.group.generation)),
                    instance_id=options.get("instance"),
                    protocol_name=options.get("protocol"),
                    assignments={member: share.encode() for member, share in shares.items()},
                )
            case "beat":
                return events.Heartbeat(
                    ticket=self._ticket(name),
                    member_id=name,
                    generation=int(options.get("gen", self.group.generation)),
                    instance_id=options.get("instance"),
                )
            case "leave":
                gone = tuple(
                    events.Departure(
                        member_id="" if each.startswith("@") else each,
                        instance_id=each[1:] if each.startswith("@") else options.get("instance"),
                    )
                    for each in arguments
                )
                return events.Leave(ticket=self._ticket(name), departures=gone)
            case "stored":
                return events.Stored(generation=self.group.generation)
            case "lost":
                return events.StoreFailed(generation=self.group.generation)
            case "tick":
                return events.Tick()
        raise AssertionError(f"no verb {verb}")

    def _join(self, name: str, options: dict[str, str]) -> events.Join:
        """`join a` is a client called a without a member id; `join id=a` comes back as member a."""
        client = name or options["id"]
        self.spares[client] = self.spares.get(client, 0) + 1
        spare = client if self.spares[client] == 1 else f"{client}{self.spares[client]}"
        return events.Join(
            ticket=self._ticket(client),
            member_id=options.get("id", ""),
            instance_id=options.get("instance"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(
                events.Protocol(name=each, metadata=options.get("wants", "t").encode())
                for each in options.get("speaks", "range").split(",")
            ),
            must_know_member_id="v4" in options,
            can_skip_assignment="v9" in options,
            spare_member_id=options.get("spare", spare),
        )

    def _show(self, action: events.Action) -> str:
        match action:
            case events.AnswerJoin(ticket=ticket, reply=reply):
                return f"join {self.names[ticket]}: {_show_join(reply)}"
            case events.AnswerSync(ticket=ticket, reply=reply):
                share = reply.assignment.decode() or "nothing"
                return f"sync {self.names[ticket]}: {_show_error(reply.error) or share}"
            case events.AnswerHeartbeat(ticket=ticket, error=error):
                return f"beat {self.names[ticket]}: {_show_error(error) or 'ok'}"
            case events.AnswerLeave(replies=replies):
                gone = (f"{each.member_id or each.instance_id} {_show_error(each.error) or 'ok'}" for each in replies)
                return "leave: " + ", ".join(gone)
            case events.StoreGroup(snapshot=snapshot):
                shares = ", ".join(f"{m.member_id}={m.assignment.decode()}" for m in snapshot.members)
                return f"store generation {snapshot.generation} [{shares}]"
            case events.RebalanceStarted(reason=reason):
                return f"rebalance: {reason}"
            case events.GenerationStarted(generation=generation, member_count=count):
                return f"generation {generation} with {count}"


def _show_error(error: GroupError) -> str:
    return "" if error is GroupError.NONE else error.name


def _show_join(reply: events.JoinReply) -> str:
    if reply.error is not GroupError.NONE:
        return f"{reply.error.name} as {reply.member_id or 'nobody'}"
    members = "".join(f" {each.member_id}" for each in reply.members)
    skip = " skip" if reply.skip_assignment else ""
    told = f" of{members}" if members else ""
    return f"{reply.member_id} gen {reply.generation} {reply.protocol_name} leader {reply.leader_id}{told}{skip}"


def run(script: str, *, settings: ClassicSettings | None = None, stores: bool = True) -> str:
    scripted = ScriptedGroup(group=ClassicGroup(settings=settings or ClassicSettings()), stores=stores)
    return play(scripted, script)
