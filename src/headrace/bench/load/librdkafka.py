"""The load that ordinary clients make, through confluent-kafka.

Each function prepares, warms up, calls `begin` (which returns when the measured part may start) and measures. Records
that carry a time hold the nanosecond of the machine's monotonic clock at which they fell due, so that a stall of
broker or client counts against the records that had to wait for it (no coordinated omission).
"""

import os
import struct
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from headrace.bench.load.jobs import ConsumeJob, Latency, Outcome, PacedProduceJob, ProduceJob, ScanJob, WatchJob

Begin = Callable[[], None]

_DELIVERY_SECONDS_MAX: Final = 60
_OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
_CONSUMED_AT_ONCE: Final = 2_000
_STAMP: Final = struct.Struct(">qb")
"""When the record fell due, and whether it belongs to the measured window."""


def produce(job: ProduceJob, begin: Begin) -> Outcome:
    problems: list[str] = []
    producer = _producer(
        job.bootstrap,
        problems,
        {
            "linger.ms": 5,
            "batch.size": job.batch_bytes,
            "message.max.bytes": 1_048_588,
            # Only failures call back: a Python call per record would measure Python.
            "delivery.report.only.error": True,
        },
    )
    records_per_batch = max(1, job.batch_bytes // (job.record_bytes + 16))
    value = os.urandom(job.record_bytes)
    chunk = [{"value": value} for _ in range(records_per_batch)]
    outstanding_max = _OUTSTANDING_BYTES_MAX // job.record_bytes

    def send(count: int) -> int:
        for index in range(count // records_per_batch):
            queued = producer.produce_batch(job.topic, chunk, partition=index % job.partitions)
            if queued != records_per_batch:
                problems.append(f"{records_per_batch - queued} records did not fit in the client's queue")
            while len(producer) > outstanding_max:
                producer.poll(0.001)
        left = producer.flush(_DELIVERY_SECONDS_MAX)
        if left:
            problems.append(f"{left} records were not acknowledged in {_DELIVERY_SECONDS_MAX} s")
        return count // records_per_batch * records_per_batch

    warm_up = send(job.warm_up_count)
    begin()
    began = time.perf_counter()
    sent = send(job.count)
    seconds = time.perf_counter() - began
    return Outcome(
        count=sent,
        total=warm_up + sent,
        bytes=sent * job.record_bytes,
        seconds=seconds,
        problems=problems[:5],
    )


def consume(job: ConsumeJob, begin: Begin) -> Outcome:
    consumer = _consumer(job.bootstrap)
    begin()
    began = time.perf_counter()
    consumer.assign([TopicPartition(job.topic, index, OFFSET_BEGINNING) for index in job.partitions])
    count = size = 0
    problems: list[str] = []
    last_progress = began
    while count < job.count:
        messages = consumer.consume(min(_CONSUMED_AT_ONCE, job.count - count), timeout=0.5)
        now = time.perf_counter()
        for message in messages:
            if message.error() is not None:
                problems.append(str(message.error()))
            else:
                count += 1
                size += len(message)
        if messages:
            last_progress = now
        elif now - last_progress > _DELIVERY_SECONDS_MAX:
            problems.append(f"{job.count - count} of {job.count} records never came")
            break
    seconds = time.perf_counter() - began
    consumer.close()
    return Outcome(count=count, bytes=size, seconds=seconds, problems=problems[:5])


def scan(job: ScanJob, begin: Begin) -> Outcome:
    os.nice(job.niceness)
    consumer = _consumer(job.bootstrap, {"enable.partition.eof": True})
    begin()
    began = time.perf_counter()
    from_the_start = [TopicPartition(job.topic, index, OFFSET_BEGINNING) for index in job.partitions]
    consumer.assign(from_the_start)
    count = size = 0
    problems: list[str] = []
    ended: set[int] = set()
    while (seconds := time.perf_counter() - began) < job.seconds:
        for message in consumer.consume(_CONSUMED_AT_ONCE, timeout=0.1):
            error = message.error()
            if error is None:
                count += 1
                size += len(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                problems.append(str(error))
        if len(ended) == len(job.partitions):
            ended.clear()
            consumer.assign(from_the_start)
    consumer.close()
    return Outcome(count=count, bytes=size, seconds=seconds, problems=problems[:5])


def produce_paced(job: PacedProduceJob, begin: Begin) -> Outcome:
    problems: list[str] = []
    producer = _producer(job.bootstrap, problems, {"linger.ms": 1})
    for topic in job.topics:
        producer.list_topics(topic, timeout=30)
    waits_ms = array("d")

    def acknowledged(due_ns: int, error: Any, _message: Any) -> None:  # confluent-kafka is untyped
        if error is not None:
            problems.append(str(error))
        elif due_ns:
            waits_ms.append((time.monotonic_ns() - due_ns) / 1e6)

    padding = os.urandom(job.record_bytes - _STAMP.size)
    begin()
    interval_ns = 1_000_000_000 // job.records_per_second
    start_ns = time.monotonic_ns()
    measured_from = start_ns + int(job.warm_up_seconds * 1e9)
    count = int(job.records_per_second * (job.warm_up_seconds + job.seconds))
    for index in range(count):
        due_ns = start_ns + index * interval_ns
        while time.monotonic_ns() < due_ns:
            producer.poll(0.001)
        is_measured = due_ns >= measured_from
        producer.produce(
            job.topics[index // 16 % len(job.topics)],
            _STAMP.pack(due_ns, is_measured) + padding,
            on_delivery=partial(acknowledged, due_ns if is_measured else 0),
        )
    left = producer.flush(_DELIVERY_SECONDS_MAX)
    if left:
        problems.append(f"{left} records were not acknowledged in {_DELIVERY_SECONDS_MAX} s")
    return Outcome(
        count=len(waits_ms),
        bytes=len(waits_ms) * job.record_bytes,
        seconds=job.seconds,
        latency=summarise(waits_ms),
        problems=problems[:5],
    )


def watch(job: WatchJob, begin: Begin) -> Outcome:
    consumer = _consumer(job.bootstrap)
    consumer.assign([TopicPartition(job.topic, index, OFFSET_BEGINNING) for index in range(job.partitions)])
    consumer.poll(1.0)  # The topic is empty; this has the fetches under way before the first record.
    begin()
    waits_ms = array("d")
    problems: list[str] = []
    seen = 0
    began = time.perf_counter()
    while seen < job.count:
        message = consumer.poll(0.1)
        if message is None:
            if time.perf_counter() - began > job.seconds_max:
                problems.append(f"{job.count - seen} of {job.count} records never came")
                break
            continue
        if message.error() is not None:
            problems.append(str(message.error()))
            continue
        seen += 1
        due_ns, is_measured = _STAMP.unpack_from(message.value())
        if is_measured:
            waits_ms.append((time.monotonic_ns() - due_ns) / 1e6)
    consumer.close()
    seconds = time.perf_counter() - began
    return Outcome(count=seen, seconds=seconds, latency=summarise(waits_ms), problems=problems[:5])


def summarise(waits_ms: "array[float]") -> Latency | None:
    if not waits_ms:
        return None
    p50, p99, p999, longest = np.percentile(np.frombuffer(waits_ms), (50, 99, 99.9, 100))
    return Latency(p50=float(p50), p99=float(p99), p999=float(p999), max=float(longest))


def _producer(bootstrap: str, problems: list[str], settings: dict[str, object]) -> Any:  # untyped library
    def note_failure(error: Any, _message: Any) -> None:  # untyped library
        if error is not None:
            problems.append(str(error))

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.kbytes": 1_048_576,
            "queue.buffering.max.messages": 2_000_000,
            "message.timeout.ms": _DELIVERY_SECONDS_MAX * 1000,
            "on_delivery": note_failure,
            "log_level": 0,
        }
        | settings
    )


def _consumer(bootstrap: str, settings: dict[str, object] | None = None) -> Any:  # untyped library
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "headrace-bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 500,
            "queued.max.messages.kbytes": 65_536,
            # With its default a client that is behind its broker stops asking for a second, whatever its queue holds by then.
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
        | (settings or {})
    )
