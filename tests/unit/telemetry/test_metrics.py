from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from headrace.telemetry.metrics import (
    LATENCY_SAMPLES,
    STEP_SAMPLES,
    Family,
    Histogram,
    LatencyWindow,
    Metrics,
    counter,
    gauge,
    histogram,
    latency,
)


@dataclass(slots=True)
class DoorMetrics:
    PREFIX: ClassVar[str] = ""

    messages_produced_total: int = counter("Records appended.")
    active_connections: int = gauge("Connections open now.")
    produce_latency_ns: LatencyWindow = field(
        default_factory=LatencyWindow, metadata=latency("From request to answer.")
    )
    flush_ms: Histogram = field(default_factory=partial(Histogram, (1, 10)), metadata=histogram("Time of a flush."))
    scratch: list[int] = field(default_factory=list)


def test_plain_ints_are_read_when_somebody_scrapes() -> None:
    metrics, door = Metrics(), DoorMetrics()
    metrics.register(door)
    door.messages_produced_total += 3
    door.active_connections = 2
    text = metrics.render().decode()
    assert "# TYPE messages_produced_total counter\nmessages_produced_total 3.0" in text
    assert "# HELP active_connections Connections open now." in text
    assert "active_connections 2.0" in text
    assert "scratch" not in text


def test_latency_is_shown_as_three_percentiles() -> None:
    metrics, door = Metrics(), DoorMetrics()
    metrics.register(door)
    for duration_ns in range(1, 101):
        door.produce_latency_ns.record(duration_ns)
    numbers = metrics.snapshot()
    assert numbers["produce_latency_ns_p50"] == 50
    assert numbers["produce_latency_ns_p95"] == 95
    assert numbers["produce_latency_ns_p99"] == 99
    assert "produce_latency_ns_p99 99.0" in metrics.render().decode()


def test_a_latency_window_forgets_all_but_the_newest_samples() -> None:
    window = LatencyWindow()
    assert window.percentile(99) == 0
    for _ in range(LATENCY_SAMPLES):
        window.record(1_000_000)
    for _ in range(LATENCY_SAMPLES):
        window.record(7)
    assert window.percentile(99) == 7


def test_histogram_bounds_are_inclusive_and_counts_cumulative() -> None:
    metrics, door = Metrics(), DoorMetrics()
    metrics.register(door)
    for value in (0.5, 1, 5, 11):
        door.flush_ms.record(value)
    text = metrics.render().decode()
    assert 'flush_ms_bucket{le="1"} 2.0' in text
    assert 'flush_ms_bucket{le="10"} 3.0' in text
    assert 'flush_ms_bucket{le="+Inf"} 4.0' in text
    assert "flush_ms_sum 17.5" in text


def test_a_family_is_worked_out_at_scrape_time() -> None:
    lag = {("orders", "0", "billing"): 4}
    metrics = Metrics()
    metrics.register_family(
        Family(
            name="consumer_lag",
            sentence="Records a group has yet to read.",
            labels=("topic", "partition", "group"),
            samples=lag.items,
        )
    )
    lag["orders", "0", "billing"] = 9
    assert 'consumer_lag{group="billing",partition="0",topic="orders"} 9.0' in metrics.render().decode()
    assert metrics.snapshot() == {}, "labelled numbers have no place in a flat snapshot"


def test_process_metrics_are_there_when_asked_for() -> None:
    assert b"process_resident_memory_bytes" in Metrics(with_process=True).render()
    assert b"process_" not in Metrics().render()


def test_what_is_registered_can_be_listed_for_the_reference_page() -> None:
    metrics = Metrics()
    metrics.register(DoorMetrics())
    metrics.register_family(Family(name="requests", sentence="By API.", kind="counter", labels=("api",), samples=list))
    assert [(declared.name, declared.kind, declared.labels) for declared in metrics.declared()] == [
        ("messages_produced_total", "counter", ()),
        ("active_connections", "gauge", ()),
        ("produce_latency_ns", "latency", ()),
        ("flush_ms", "histogram", ()),
        ("requests_total", "counter", ("api",)),
    ]


def test_names_carry_our_prefix_unless_told_otherwise() -> None:
    @dataclass(slots=True)
    class LogMetrics:
        flushes_total: int = counter("Flushes.")

    metrics = Metrics()
    metrics.register(LogMetrics())
    assert metrics.snapshot() == {"headrace_flushes_total": 0}


def test_very_many_numbers_are_rendered_a_few_at_a_time() -> None:
    metrics = Metrics()
    samples = [((str(number),), float(number)) for number in range(5 * STEP_SAMPLES + 1)]
    metrics.register_family(Family(name="lag", sentence="By group.", labels=("group",), samples=lambda: samples))
    metrics.register_family(Family(name="none", sentence="Nobody.", labels=("group",), samples=list))
    steps = list(metrics.render_in_steps())
    assert max(step.count(b"\n") for step in steps) <= STEP_SAMPLES + 2
    lines = b"".join(steps).decode().splitlines()
    assert sum(line.startswith("lag{") for line in lines) == len(samples)
    assert [line for line in lines if line.startswith("#")] == [
        "# HELP lag By group.",
        "# TYPE lag gauge",
        "# HELP none Nobody.",
        "# TYPE none gauge",
    ]
