"""W9: how old the newest rows of a table are while records flow into it, and how soon that is so again after a kill.

headrace as `headrace up` starts it, its pipeline with every default query included. A record's time runs from its
acknowledgement to the first look at a freshly loaded catalog that shows its offset as landed, which is committed
together with its row. At the end the table's rows are compared with what was acknowledged: each of them, once.
"""

import os
import signal
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka import KafkaError, Message, Producer

from headrace.bench.case import Case, Workload
from headrace.bench.errors import LoadFailed
from headrace.bench.load.spark import keep_classes
from headrace.bench.process import read_usage
from headrace.bench.rivals import Broker, Headrace
from headrace.bench.scale import Scale
from headrace.bench.topics import create_topics, describe_topic_id

_TOPIC: Final = "w9"
_TABLE: Final = "bronze.records"
_PARTITIONS: Final = 4
_RECORD_BYTES: Final = 1024
_RECORDS_PER_SECOND: Final = 5 * 1024
_TICK_SECONDS: Final = 0.02
_LOOK_SECONDS: Final = 0.25
_START_SECONDS_MAX: Final = 300.0
_DRAIN_SECONDS_MAX: Final = 300.0
_FRESH_SECONDS: Final = 10.0
_AFTER_KILL_SECONDS: Final = 90.0
_PIPELINE_MODULE: Final = "headrace.pipeline.main"


def _cases(_: Scale) -> list[Case]:
    return [Case(workload="w9", name="5 MiB/s", measure=_measure, is_fresh=True)]


WORKLOAD: Final = Workload(
    name="w9",
    title="Freshness of a table",
    question=(
        "Records flow at 5 MiB/s into an Iceberg table through Spark, all default queries on: how long until an "
        "acknowledged record is seen in a freshly loaded catalog, and how soon is that so again after a kill?"
    ),
    cases=_cases,
    rounds=lambda _: 1,
    rivals=(Headrace(has_pipeline=True),),
)


def _measure(broker: Broker, scale: Scale) -> dict[str, float]:
    keep_classes()
    create_topics(broker.bootstrap, [_TOPIC], partitions=_PARTITIONS)
    acknowledged = Acknowledged(_PARTITIONS)
    table = _FreshTable(broker)
    with _flowing(broker.bootstrap, acknowledged):
        _await_first_rows(table)
        watch = Watch(acknowledged)
        pid = _find_pipeline(broker.pid)
        cpu_before, began = read_usage(pid).cpu_seconds, time.monotonic()
        watch.look_until(began + scale.freshness_seconds, table)
        cpu_share = 100 * (read_usage(pid).cpu_seconds - cpu_before) / (time.monotonic() - began)
        waits = watch.waits_of(began, time.monotonic())
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        watch.look_until(killed + _AFTER_KILL_SECONDS, table)
    watch.look_until_all(time.monotonic() + _DRAIN_SECONDS_MAX, table)
    table.check_rows(acknowledged)
    return {
        "visible_p50": float(np.percentile(waits, 50)),
        "visible_p95": float(np.percentile(waits, 95)),
        "visible_max": float(np.max(waits)),
        "recovery_seconds": watch.stale_until(killed) - killed,
        "pipeline_cpu_share": cpu_share,
    }


class Acknowledged:
    """When each offset was acknowledged. A fresh topic with one producer, so offsets come one after the other."""

    def __init__(self, partitions: int) -> None:
        self.times = [array("d") for _ in range(partitions)]
        self.problems: list[str] = []

    # confluent-kafka is untyped
    def take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(str(error))
            return
        times = self.times[message.partition()]
        if message.offset() != len(times):
            self.problems.append(f"offset {message.offset()} was acknowledged where {len(times)} comes next")
        times.append(time.monotonic())


class Watch:
    """What was visible when, held against what was acknowledged when."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._ends = [0] * len(acknowledged.times)
        self._seen: list[tuple[float, float]] = []
        """When a record was acknowledged, and how long it took to be visible."""
        self._stale: list[float] = []
        """Moments at which an acknowledged record had not been visible for too long."""

    def see(self, ends: list[int], now: float) -> None:
        """The table holds offsets below `ends`."""
        for index, end in enumerate(ends):
            times = self._acknowledged.times[index]
            # A record can land before its producer hears of it; it is seen at the next look.
            for offset in range(self._ends[index], min(end, len(times))):
                self._seen.append((times[offset], now - times[offset]))
            self._ends[index] = max(self._ends[index], min(end, len(times)))
            if self._ends[index] < len(times) and now - times[self._ends[index]] > _FRESH_SECONDS:
                self._stale.append(now)

    def look_until(self, deadline: float, table: "_FreshTable") -> None:
        while time.monotonic() < deadline:
            ends = table.ends()
            self.see(ends, time.monotonic())
            if self._acknowledged.problems:
                raise LoadFailed(self._acknowledged.problems[0])
            time.sleep(_LOOK_SECONDS)

    def look_until_all(self, deadline: float, table: "_FreshTable") -> None:
        while self._ends != [len(times) for times in self._acknowledged.times]:
            if time.monotonic() > deadline:
                raise LoadFailed(f"not every record was in the table {_DRAIN_SECONDS_MAX:.0f} s after the last")
            self.look_until(time.monotonic() + _LOOK_SECONDS, table)

    def waits_of(self, first: float, last: float) -> list[float]:
        """Waits of the records acknowledged in between; those not yet visible have waited until now."""
        now = time.monotonic()
        waits = [wait for acknowledged, wait in self._seen if first <= acknowledged < last]
        for end, times in zip(self._ends, self._acknowledged.times, strict=True):
            waits += [now - when for when in times[end:] if first <= when < last]
        if not waits:
            raise LoadFailed("no record fell into the measured window")
        return waits

    def stale_until(self, since: float) -> float:
        """The last moment after `since` at which something was stale; `since` itself when nothing was."""
        return max((moment for moment in self._stale if moment >= since), default=since)


class _FreshTable:
    """The table as somebody sees it who has just opened the catalog."""

    def __init__(self, broker: Broker) -> None:
        from headrace.pipeline.settings import load_config

        path = broker.directory / "data" / "pipeline" / "headrace.yml"
        _await(path.exists, "the pipeline wrote no configuration")
        self._config = load_config(path)
        self._topic_id = describe_topic_id(broker.bootstrap, _TOPIC)

    def ends(self) -> list[int]:
        """Offsets below these have landed, by partition."""
        from headrace.errors import NotFound
        from headrace.pipeline.queries import open_tables

        ends = [0] * _PARTITIONS
        try:
            coverage = open_tables(self._config).open(_TABLE).coverage()
        except NotFound:
            return ends
        for key, ranges in coverage.ranges.items():
            if key.topic_id == self._topic_id and ranges[0].start == 0:
                ends[key.partition] = ranges[0].end
        return ends

    def check_rows(self, acknowledged: Acknowledged) -> None:
        from headrace.pipeline.queries import open_tables

        handle = open_tables(self._config).open(_TABLE).handle
        rows = handle.scan(row_filter=f"topic = '{_TOPIC}'", selected_fields=("partition", "offset")).to_arrow()
        partitions, offsets = rows["partition"].to_numpy(), rows["offset"].to_numpy()
        for index, times in enumerate(acknowledged.times):
            found = np.sort(offsets[partitions == index])
            if not np.array_equal(found, np.arange(len(times))):
                raise LoadFailed(f"partition {index}: {len(found)} rows for {len(times)} acknowledged records")


@contextmanager
def _flowing(bootstrap: str, acknowledged: Acknowledged) -> Iterator[None]:
    """Records at a steady rate, by the clock, until the block ends."""
    is_over = threading.Event()
    thread = threading.Thread(target=_produce, args=(bootstrap, acknowledged, is_over), name="w9 load")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if acknowledged.problems:
        raise LoadFailed(acknowledged.problems[0])


def _produce(bootstrap: str, acknowledged: Acknowledged, is_over: threading.Event) -> None:
    producer: Any = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": True,
            "on_delivery": acknowledged.take,
            "log_level": 0,
        }
    )
    value = os.urandom(_RECORD_BYTES // 2) + bytes(_RECORD_BYTES // 2)
    began, sent = time.monotonic(), 0
    while not is_over.wait(_TICK_SECONDS):
        due = int((time.monotonic() - began) * _RECORDS_PER_SECOND)
        for index in range(sent, due):
            producer.produce(_TOPIC, value, partition=index % _PARTITIONS)
        sent = due
        producer.poll(0)
    if producer.flush(60):
        acknowledged.problems.append("records were not acknowledged in 60 s")


def _await_first_rows(table: _FreshTable) -> None:
    _await(lambda: any(table.ends()), "the pipeline landed nothing")


def _await(condition: Any, complaint: str) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise LoadFailed(f"{complaint} in {_START_SECONDS_MAX:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _find_pipeline(node: int) -> int:
    """The pipeline's process among the node's children."""
    for children in Path(f"/proc/{node}/task").glob("*/children"):
        for child in children.read_text().split():
            if _PIPELINE_MODULE in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise LoadFailed("the node runs no pipeline")
