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
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.rounds += 1


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
