"""A well-behaved client that lives beside the hostile ones and must never notice them."""

import itertools
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import RawKafka, batch_of

from headrace.records.record import read_records

PATIENCE_S = 30.0
"""For one round trip, on a machine that has other things to do."""
_ATTEMPTS = 5
_QUIET_S = 1.0


class Canary(threading.Thread):
    """Writes a record, reads it back, over one connection that stays open all the time."""

    def __init__(self, address: str) -> None:
        super().__init__(name="canary", daemon=True)
        self._address = address
        self._stopping = threading.Event()
        self.rounds = 0
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
        self.rounds += 1

    def check_undisturbed_by(self, attack: Callable[[], None]) -> None:
        """The bar for every attack: p99 at most five times what it was before, or a quarter of a second.

        The best of a few attempts: what else runs on the machine can hold up the canary once in a while, and a loop that is
        blocked holds it up every time.
        """
        found = []
        for _ in range(_ATTEMPTS):
            time.sleep(_QUIET_S)
            self._finish_round()
            before = self.times_s[:]
            attack()
            self._finish_round()
            since = self.times_s[len(before) :]
            allowed = max(5 * _p99(before), 0.25)
            if _p99(since) <= allowed:
                return
            found.append(f"p99 {_p99(since):.3f} s of {len(since)} rounds, {allowed:.3f} s are allowed")
        raise AssertionError(found)

    def _finish_round(self) -> None:
        """The one that is under way belongs to what has just happened."""
        sung = len(self.times_s)
        eventually(lambda: len(self.times_s) > sung, PATIENCE_S, "the canary fell silent")


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
