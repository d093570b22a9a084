"""A well-behaved client that lives beside the hostile ones and must never notice them."""

import itertools
import re
import threading
import time
import urllib.request
from pathlib import Path
from typing import Self

from tests.support.node import NodeProcess
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.records.record import read_records

PATIENCE_S = 30.0
"""For one round trip, on a machine that has other things to do."""


class Canary(threading.Thread):
    """Writes a record, reads it back, over one connection that stays open all the time."""

    def __init__(self, address: str) -> None:
        super().__init__(name="canary", daemon=True)
        self._address = address
        self._stopping = threading.Event()
        self.rounds = 0
        self.slowest_s = 0.0
        self.times_s: list[float] = []
        """Of every round."""
        self.problem: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(2 * PATIENCE_S)
        assert self.problem is None, f"the canary: {self.problem}"
        assert self.rounds > 0, "the canary never sang"

    def run(self) -> None:
        try:
            with RawKafka(self._address, timeout=PATIENCE_S) as client:
                client.create_topic("canary")
                for number in itertools.count():
                    if self._stopping.is_set() and number:
                        return
                    self._sing(client, b"song %d" % number)
                    self._stopping.wait(0.005)
        except BaseException as error:
            self.problem = repr(error)

    def _sing(self, client: RawKafka, value: bytes) -> None:
        began = time.monotonic()
        answer = client.produce("canary", 0, batch_of([value]))
        assert answer.error_code == 0, answer
        found = client.fetch("canary", 0, answer.base_offset, wait_ms=1000)
        assert [record.value for record in read_records(found.records or b"")][:1] == [value]
        self.times_s.append(time.monotonic() - began)
        self.slowest_s = max(self.slowest_s, self.times_s[-1])
        self.rounds += 1

    def rest_of(self, quiet_s: float = 1.0) -> "Quiet":
        """Listen to how it sings while nobody disturbs it."""
        time.sleep(quiet_s)
        return Quiet(self, list(self.times_s))


class Quiet:
    """How long the canary took before an attack, to hold against how long it takes since."""

    def __init__(self, canary: Canary, times_s: list[float]) -> None:
        assert times_s, "the canary has not sung yet"
        self._canary = canary
        self._before = times_s

    def check_undisturbed(self) -> None:
        """The bar for every attack: p99 at most five times what it was, or a quarter of a second on a machine that is slow
        by itself."""
        since = self._canary.times_s[len(self._before) :]
        assert since, "the canary fell silent"
        allowed = max(5 * _p99(self._before), 0.25)
        assert _p99(since) <= allowed, f"p99 {_p99(since):.3f} s of {len(since)} rounds, {allowed:.3f} s are allowed"


def _p99(times_s: list[float]) -> float:
    return sorted(times_s)[int(len(times_s) * 0.99)]


def rss_bytes(node: NodeProcess) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{node.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def metric(node: NodeProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None, f"no metric {name}"
    return float(found[1])
