"""`headrace wasm try`: the last records of a topic through a module, here and not on the node. Nothing is written anywhere."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition

from headrace.cli.kafka import TIMEOUT_SECONDS, calling, client_settings, raised
from headrace.cli.kafka_fetch import TopicFetcher
from headrace.errors import InvalidRecords, Unavailable
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord, Record, read_batch_records
from headrace.transforms.batches import Run, transform
from headrace.transforms.programs import Compiler, Program
from headrace.transforms.sandbox import Epochs, Sandbox
from headrace.transforms.settings import WasmSettings

BATCH_RECORDS: Final = 100
"""As many go through the module together; producers' own batches are not known any more."""
_WAIT_MS: Final = 500


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One record before and after; `after` is None where the module dropped it, or failed."""

    partition: int
    before: Record
    after: Record | None
    failure: str | None = None

    @property
    def what(self) -> str:
        if self.failure is not None:
            return "failed"
        if self.after is None:
            return "dropped"
        return "same" if self.after == self.before else "changed"


def check_module(name: str, code: bytes) -> Program:
    """Whether a node with the settings that nobody has changed would take it."""
    compiler = Compiler(WasmSettings())
    epochs = Epochs(compiler.engine)
    program = compiler.compile(name, code)
    with closing(epochs), epochs.ticking():
        Sandbox(compiler, WasmSettings()).try_out(program)
    return program


def try_module(name: str, code: bytes, records: Sequence[tuple[int, Record]]) -> tuple[list[Difference], list[str]]:
    """What became of each record, and what the module logged."""
    settings = WasmSettings()
    compiler = Compiler(settings)
    program, sandbox, epochs = compiler.compile(name, code), Sandbox(compiler, settings), Epochs(compiler.engine)
    differences: list[Difference] = []
    lines: list[str] = []
    with closing(epochs), epochs.ticking():
        for partition, batch in _batches(records):
            differences += _through(partial(sandbox.run, program), partition, batch)
            lines += sandbox.lines
    return differences, lines


def _batches(records: Sequence[tuple[int, Record]]) -> Iterator[tuple[int, list[Record]]]:
    by_partition: dict[int, list[Record]] = {}
    for partition, record in records:
        by_partition.setdefault(partition, []).append(record)
    for partition, found in sorted(by_partition.items()):
        for start in range(0, len(found), BATCH_RECORDS):
            yield partition, found[start : start + BATCH_RECORDS]


def _through(run: Run, partition: int, before: list[Record]) -> list[Difference]:
    new = [
        NewRecord(key=each.key, value=each.value, headers=each.headers, timestamp_ms=each.timestamp_ms)
        for each in before
    ]
    try:
        made = transform(bytes(build_batch(new, now_ms=0)), run, keys_needed=False)
    except InvalidRecords as error:
        return [Difference(partition=partition, before=each, after=None, failure=str(error)) for each in before]
    after = {each.offset: each for each in read_batch_records(made)}
    return [
        Difference(partition=partition, before=each, after=_placed(after.get(place), each))
        for place, each in enumerate(before)
    ]


def _placed(made: Record | None, before: Record) -> Record | None:
    """With the offset that it has in its topic."""
    return None if made is None else msgspec.structs.replace(made, offset=before.offset)


def last_records(bootstrap: str, topic: str, count: int) -> list[tuple[int, Record]]:
    """The newest `count` records that can be read, oldest first, each with its partition."""
    consumer = Consumer({**client_settings(bootstrap), "group.id": "headrace-cli", "enable.auto.commit": False})
    try:
        metadata = calling(lambda: consumer.list_topics(topic, timeout=TIMEOUT_SECONDS))
        found = metadata.topics[topic]
        if found.error is not None:
            raise raised(found.error, topic=topic)
        brokers = {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}
        leaders = {index: brokers[each.leader] for index, each in found.partitions.items() if each.leader in brokers}
        bounds = {index: _bounds(consumer, topic, index) for index in leaders}
    finally:
        consumer.close()
    with closing(TopicFetcher(topic, is_committed_only=True)) as fetcher:
        records = [
            (index, record)
            for index, (low, high) in bounds.items()
            for record in _read(fetcher, {index: leaders[index]}, index, max(low, high - count), high)
        ]
    return sorted(records, key=lambda each: (each[1].timestamp_ms, each[0], each[1].offset))[-count:]


def _bounds(consumer: Consumer, topic: str, index: int) -> tuple[int, int]:
    low, high = calling(lambda: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=TIMEOUT_SECONDS))
    return low, high


def _read(fetcher: TopicFetcher, leaders: dict[int, str], index: int, start: int, end: int) -> Iterator[Record]:
    position = start
    while position < end:
        (fetched,) = fetcher.fetch(leaders, {index: position}, wait_ms=_WAIT_MS)
        if fetched.error_code:
            raise Unavailable(f"partition {index} cannot be read: error {fetched.error_code}")
        if not fetched.records:
            return  # What is left belongs to a transaction that is open.
        for behind, record in fetcher.records_of(fetched, position):
            position = behind
            if record is not None:
                yield record
