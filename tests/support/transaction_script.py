"""Scripts for the transaction machine.

0    init                        time in ms, verb, options
     > persist EMPTY 1/0         producer id / epoch
1    ok                          the image asked for is durable
"""

from dataclasses import dataclass, field

from tests.support.script import play

from headrace.broker.transactions import events
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError
from headrace.broker.transactions.machine import TransactionMachine, TransactionSettings, new_transaction


@dataclass
class ScriptedTransaction:
    machine: TransactionMachine = field(
        default_factory=lambda: new_transaction(1, timeout_ms=60_000, now_ms=0, settings=TransactionSettings())
    )
    names: dict[int, str] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)
    spare: int = 1

    def play(self, line: str) -> list[str]:
        time, verb, *words = line.split()
        arguments = [each for each in words if "=" not in each]
        options = dict(each.split("=", 1) for each in words if "=" in each)
        actions = self.machine.step(self._event(verb, arguments, options), now_ms=int(time))
        self.machine.check_invariants()
        for action in actions:
            if isinstance(action, events.Answer | events.AnswerProducer):
                assert action.ticket not in self.answered, "answered twice"
                self.answered.append(action.ticket)
        is_request = verb in ("init", "add", "commit", "abort", "commit+", "abort+")
        return [self._show(action) for action in actions] or (["waits"] if is_request else [])

    def _ticket(self, name: str) -> int:
        ticket = len(self.names) + 1
        self.names[ticket] = name
        return ticket

    def _event(self, verb: str, arguments: list[str], options: dict[str, str]) -> events.Event:
        image = self.machine.image
        producer = _identity(options.get("as", f"{image.producer_id}/{image.epoch}"))
        match verb:
            case "init":
                self.spare += 1
                return events.Init(
                    ticket=self._ticket("init"),
                    timeout_ms=int(options.get("timeout", 60_000)),
                    expected=_identity(options["was"]) if "was" in options else None,
                    spare_producer_id=self.spare,
                )
            case "add":
                added = frozenset(TopicPartition(each, 0) for each in arguments)
                return events.AddPartitions(ticket=self._ticket("add"), producer=producer, partitions=added)
            case "commit" | "abort":
                return events.End(ticket=self._ticket(verb), producer=producer, is_commit=verb == "commit")
            case "commit+" | "abort+":
                # The client goes on under another epoch (KIP-890, version 2).
                self.spare += 1
                return events.End(
                    ticket=self._ticket(verb),
                    producer=producer,
                    is_commit=verb == "commit+",
                    is_bumping=True,
                    spare_producer_id=-1 if "nospare" in arguments else self.spare,
                )
            case "ok":
                return events.Persisted()
            case "lost":
                return events.PersistFailed()
            case "marked":
                return events.MarkersWritten()
            case "tick":
                return events.Tick()
        raise AssertionError(f"no verb {verb}")

    def _show(self, action: events.Action) -> str:
        match action:
            case events.AnswerProducer(ticket=ticket, error=error, producer=producer):
                return f"{self.names[ticket]}: {_show_error(error) or _show_identity(producer)}"
            case events.Answer(ticket=ticket, error=error):
                return f"{self.names[ticket]}: {_show_error(error) or 'done'}"
            case events.Persist(image=None):
                return "forget"
            case events.Persist(image=image):
                assert image is not None
                topics = "".join(f" {each.topic}" for each in sorted(image.partitions))
                return f"persist {image.state.name} {image.producer_id}/{image.epoch}{topics}"
            case events.WriteMarkers(producer=producer, is_commit=is_commit, partitions=partitions):
                verb = "commit" if is_commit else "abort"
                topics = "".join(f" {each.topic}" for each in sorted(partitions))
                return f"mark {verb} {_show_identity(producer)}{topics}"
            case events.TimedOut(producer=producer):
                return f"timed out {_show_identity(producer)}"


def _identity(text: str) -> Identity:
    producer_id, epoch = text.split("/")
    return Identity(producer_id=int(producer_id), epoch=int(epoch))


def _show_identity(producer: Identity) -> str:
    return f"{producer.producer_id}/{producer.epoch}"


def _show_error(error: TransactionError) -> str:
    return "" if error is TransactionError.NONE else error.name


def run(script: str, scripted: ScriptedTransaction | None = None) -> str:
    return play(scripted or ScriptedTransaction(), script)
