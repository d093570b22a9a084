"""Producers behind the JSON doors, for a `Load`: they go on through every crash, and note what they were promised.

Neither protocol can tell a repetition from news, so nothing is sent twice: what was not answered stays in doubt.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping

from tests.support.checker import History, Place
from tests.support.ports import kept_port
from tests.support.workload import Actor

from headrace.clients.errors import ServerError
from headrace.clients.mlog import BlockingMlogClient
from headrace.clients.retry import RetryPolicy
from headrace.clients.rustlog import BlockingRustLogClient
from headrace.wire.mlog.errors import ConnectionClosed, RPCError, should_reconnect

ONCE = RetryPolicy(attempts_max=1, timeout_ms=5000)
LOST = (OSError, EOFError, TimeoutError, ConnectionClosed)
RUSTLOG = "listen.rustlog"
MLOG = "listen.mlog"
MLOG_TOPIC = "chaos-mlog"


@contextlib.contextmanager
def kept_doors() -> Iterator[dict[str, str]]:
    """Settings: an address for each door that stays the same over restarts."""
    with kept_port() as rustlog, kept_port() as mlog:
        yield {RUSTLOG: f"127.0.0.1:{rustlog}", MLOG: f"127.0.0.1:{mlog}"}


def door_producers(doors: Mapping[str, str], topic: str, partitions: int, history: History) -> "list[DoorProducer]":
    """RustLog's shares the topic of the Kafka clients; mlog's has one with a single partition, as it must."""
    places: list[Place] = [(topic, index) for index in range(partitions)]
    return [
        RustLogProducer("rustlog", doors[RUSTLOG], places, history, history.seed),
        MlogProducer("mlog", doors[MLOG], [(MLOG_TOPIC, 0)], history, history.seed),
    ]


class DoorProducer(Actor):
    """One request at a time on one connection."""

    def __init__(self, name: str, address: str, places: list[Place], history: History, seed: int) -> None:
        super().__init__(name, address, places, history, seed)
        self.acked_count = 0
        self._numbers = itertools.count()

    def send_while(self, produce: Callable[[str, int, list[bytes]], int]) -> None:
        """`produce` gives the base offset."""
        while not self.stopping.is_set():
            topic, partition = self.random.choice(self.places)
            values = self.values(self._numbers)
            self.history.note_acked(topic, partition, produce(topic, partition, values), values)
            self.acked_count += len(values)


class RustLogProducer(DoorProducer):
    def session(self) -> None:
        with contextlib.suppress(*LOST, ServerError), BlockingRustLogClient(self.address, retry=ONCE) as client:
            self.send_while(lambda topic, index, values: client.produce(topic, values, partition=index).base_offset)


class MlogProducer(DoorProducer):
    def session(self) -> None:
        try:
            with contextlib.suppress(*LOST), BlockingMlogClient([self.address], retry=ONCE) as client:
                self.send_while(lambda topic, _, values: client.produce_batch(topic, values).BaseOffset)
        except RPCError as error:
            if not should_reconnect(error):
                raise
