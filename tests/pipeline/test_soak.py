"""A thousand micro-batches: metadata, files and memory level off. Writes docs/benchmarks/pipeline-soak.md."""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.support.bucket import LocalBucket
from tests.support.pipelines import table
from tests.support.processes import children_of, descendants_of, jvm_of, resident_bytes
from tests.support.spark import SPARK

from headrace.pipeline.settings import PipelineConfig, load_config
from headrace.pipeline.status import read_status
from headrace.records.record import NewRecord

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

BATCHES = int(os.environ.get("HEADRACE_TEST_SOAK_BATCHES", "1000"))
RECORDS_PER_BATCH = 50
POISON_EVERY = 10
STALLED_S = 180.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "pipeline-soak.md"
NAMES = ("silver.orders", "silver.orders_dead_letters")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What the pipeline holds at one moment."""

    batch: int
    batch_ms: float
    metadata_bytes: int
    """Of the larger of the two tables' current metadata files: what every commit reads and writes."""
    snapshots: int
    metadata_files: int
    data_files: int
    checkpoint_files: int
    driver_bytes: int
    jvm_bytes: int
    workers_bytes: int


def write_config(bucket: LocalBucket, tmp_path: Path) -> Path:
    silver = {
        "kind": "silver",
        "subscribe": "orders",
        "table": NAMES[0],
        "schema": "id BIGINT NOT NULL, at TIMESTAMP",
        "event_time": "at",
        "maxOffsetsPerTrigger": RECORDS_PER_BATCH,
        "trigger_seconds": 0,
    }
    document = {
        "source": {"bucket": bucket.url},
        "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SPARK.conf},
        # A day's upkeep in a quarter of an hour. Events are of yesteryear, so their partition is closed and compacted.
        "upkeep": {"every_minutes": 1, "orphan_age_minutes": 3},
        "pipelines": {"orders": silver},
    }
    path = tmp_path / "headrace.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def produce(bucket: LocalBucket, count: int) -> None:
    bucket.create_topic("orders")
    for start in range(0, count, 5_000):
        values = [
            b"poison" if i % POISON_EVERY == 0 else b'{"id": %d, "at": "2024-05-05T05:05:05Z"}' % i
            for i in range(start, min(count, start + 5_000))
        ]
        bucket.append("orders", 0, [NewRecord(value=value, timestamp_ms=1) for value in values])


def test_a_thousand_micro_batches_hold_bounded_metadata_files_and_memory(bucket: LocalBucket, tmp_path: Path) -> None:
    produce(bucket, BATCHES * RECORDS_PER_BATCH)
    path = write_config(bucket, tmp_path)
    config = load_config(path)
    log = (tmp_path / "worker.log").open("ab")
    command = [sys.executable, "-m", "tests.support.pipeline_worker", str(path), "orders", "forever"]
    worker = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        samples = watch(worker, config, [BATCHES * tenth // 10 for tenth in range(1, 11)])
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(120) == 0
    write_page(samples)
    assert_bounded(samples)
    good, dead = (sorted(column(config, *place)) for place in zip(NAMES, ("_offset", "offset"), strict=True))
    everything = range(BATCHES * RECORDS_PER_BATCH)
    assert good == [i for i in everything if i % POISON_EVERY]
    assert dead == [i for i in everything if i % POISON_EVERY == 0]


def column(config: PipelineConfig, name: str, column: str) -> list[int]:
    values: list[int] = table(config, name).handle.scan(selected_fields=(column,)).to_arrow()[column].to_pylist()
    return values


def watch(worker: "subprocess.Popen[bytes]", config: PipelineConfig, marks: list[int]) -> list[Sample]:
    """A sample when each mark is passed. Fails when nothing moves any more."""
    samples: list[Sample] = []
    durations: list[int] = []
    last, moved_at = -1, time.monotonic()
    while len(samples) < len(marks):
        assert worker.poll() is None, "the pipeline ended"
        status = read_status(Path(config.state_dir))
        if status is not None and status.pipelines[0].batch > last:
            last, moved_at = status.pipelines[0].batch, time.monotonic()
            durations.append(status.pipelines[0].batch_ms)
            if last + 1 >= marks[len(samples)]:
                samples.append(take_sample(worker.pid, config, last + 1, durations))
                durations = []
        assert time.monotonic() - moved_at < STALLED_S, f"no batch since {last}"
        time.sleep(0.2)
    return samples


def take_sample(driver: int, config: PipelineConfig, batch: int, durations: list[int]) -> Sample:
    jvm = jvm_of(driver)
    assert jvm is not None
    workers = [pid for pid in descendants_of(driver) if pid != jvm and pid not in children_of(driver)]
    tables = [table(config, name).handle for name in NAMES]
    locations = [Path(handle.location().removeprefix("file://")) for handle in tables]
    return Sample(
        batch=batch,
        batch_ms=statistics.median(durations),
        metadata_bytes=max(Path(handle.metadata_location.removeprefix("file://")).stat().st_size for handle in tables),
        snapshots=max(len(handle.metadata.snapshots) for handle in tables),
        metadata_files=sum(count_files(location / "metadata") for location in locations),
        data_files=sum(count_files(location / "data") for location in locations),
        checkpoint_files=count_files(Path(config.checkpoint("orders"))),
        driver_bytes=resident_bytes(driver),
        jvm_bytes=resident_bytes(jvm),
        workers_bytes=sum(resident_bytes(pid) for pid in workers),
    )


def count_files(directory: Path) -> int:
    return sum(1 for path in directory.rglob("*") if path.is_file())


def assert_bounded(samples: list[Sample]) -> None:
    """The second half must not hold much more than the first did at its worst: growth by batch would double it."""
    half = len(samples) // 2
    early, late = samples[:half], samples[half:]

    def most(of: list[Sample], name: str) -> int:
        return max(int(getattr(sample, name)) for sample in of)

    for name in ("metadata_bytes", "snapshots", "metadata_files", "checkpoint_files"):
        assert most(late, name) <= 1.3 * most(early, name) + 20, name
    for name in ("driver_bytes", "jvm_bytes", "workers_bytes"):
        assert most(late, name) <= 1.3 * most(early, name), name
    assert statistics.median(s.batch_ms for s in late) <= 1.5 * statistics.median(s.batch_ms for s in early)


def write_page(samples: list[Sample]) -> None:
    mib = 1024 * 1024
    lines = [
        "# A soak of the pipeline",
        "",
        "Written by `make pipeline-soak`. One `silver` pipeline with dead letters, trigger 0, 50 records in a micro-batch, every",
        "tenth of them poison, so that each batch makes two commits. Upkeep runs every minute and deletes unreferenced files",
        "after three, which is most of a day of the default (an hour, and three) in a quarter of an hour. Rows are compared with",
        "the log in the end. The dead letters' partition is today's, which compaction leaves alone: those files grow by one",
        "with every batch until the day is over. Memory is the share of each process (PSS). The machine's "
        f"{os.cpu_count()} cores had a load",
        f"of {os.getloadavg()[2]:.1f} over the last quarter of an hour, which counts for the time per batch and for nothing else.",
        "",
        "| batches | ms per batch | snapshots | metadata file | metadata files | data files | checkpoint files "
        "| driver | JVM | workers |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {s.batch} | {s.batch_ms:.0f} | {s.snapshots} | {s.metadata_bytes / 1024:.0f} KiB | {s.metadata_files} "
            f"| {s.data_files} | {s.checkpoint_files} | {s.driver_bytes / mib:.0f} MiB | {s.jvm_bytes / mib:.0f} MiB "
            f"| {s.workers_bytes / mib:.0f} MiB |"
            for s in samples
        ),
    ]
    PAGE.write_text("\n".join(lines) + "\n")
