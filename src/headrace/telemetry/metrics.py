"""How numbers are declared, counted and shown.

A package's `metrics.py` declares a dataclass whose fields are plain ints and floats, each with its sentence:

    @dataclass(slots=True)
    class LogMetrics:
        appended_bytes_total: int = counter("Bytes of record batches appended.")
        arena_bytes: int = gauge("Bytes held in arenas now.")

        flush_ms: Histogram = field(default_factory=Histogram, metadata=histogram("Time of one flush."))

Shown as `headrace_appended_bytes_total` and so on; a class variable `PREFIX` says otherwise.

The hot path does `metrics.appended_bytes_total += size` and nothing else: an attribute of a slotted object
costs some thirty nanoseconds, a prometheus_client counter a microsecond. `Metrics` reads the fields when
somebody scrapes.

Numbers that are cheaper to work out than to keep (a lag, a queue's length) are registered as a `Family`: a
function called at scrape time. Nothing here runs unless asked, and nothing here is safe to call from a thread
other than the one that counts.
"""

import dataclasses
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, Literal, Protocol

import msgspec
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge", "latency", "histogram"]
Sample = tuple[Sequence[str], float]

LATENCY_SAMPLES: Final = 1024
"""Samples a latency window keeps: enough for a p99 that means something, 8 KiB."""

PREFIX: Final = "headrace_"
"""What names begin with, unless their class has a `PREFIX` of its own."""

PERCENTILES: Final = (50, 95, 99)

STEP_SAMPLES: Final = 200
"""Of one piece of a scrape: some three milliseconds."""

MILLISECOND_BUCKETS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def counter(sentence: str) -> Any:  # Any: stands in for an int in a dataclass body, as dataclasses.field does
    """A field that only grows. Its name ends in `_total`."""
    return dataclasses.field(default=0, metadata={"kind": "counter", "sentence": sentence})


def gauge(sentence: str) -> Any:  # Any: as above
    """A field that goes up and down. Its name ends in its unit."""
    return dataclasses.field(default=0, metadata={"kind": "gauge", "sentence": sentence})


def latency(sentence: str) -> dict[str, str]:
    """Metadata of a `LatencyWindow` field, shown as `<name>_p50`, `_p95` and `_p99`."""
    return {"kind": "latency", "sentence": sentence}


def histogram(sentence: str) -> dict[str, str]:
    """Metadata of a `Histogram` field."""
    return {"kind": "histogram", "sentence": sentence}


class LatencyWindow:
    """The last 1,024 durations, in nanoseconds; percentiles are worked out when somebody looks."""

    __slots__ = ("_next", "_samples")

    def __init__(self) -> None:
        self._samples = array("q", bytes(8 * LATENCY_SAMPLES))
        self._next = 0

    def record(self, duration_ns: int) -> None:
        self._samples[self._next % LATENCY_SAMPLES] = duration_ns
        self._next += 1

    def percentile(self, percent: int) -> int:
        """Nearest-rank percentile; 0 before the first sample."""
        taken = sorted(self._samples[: min(self._next, LATENCY_SAMPLES)])
        if not taken:
            return 0
        return taken[max(0, -(-len(taken) * percent // 100) - 1)]


class Histogram:
    """Counts by bucket, kept as plain ints. Upper bounds are inclusive."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = MILLISECOND_BUCKETS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def record(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        running, pairs = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            pairs.append((bound, float(running)))
        return pairs


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric whose samples are worked out at scrape time."""

    name: str
    sentence: str
    kind: Literal["counter", "gauge"] = "gauge"
    labels: tuple[str, ...] = ()
    samples: Callable[[], Iterable[Sample]]
    """Gives (label values, number) pairs; without labels, one pair with `()`."""

    @property
    def shown_name(self) -> str:
        """Prometheus ends the name of every counter in `_total`."""
        is_short = self.kind == "counter" and not self.name.endswith("_total")
        return self.name + "_total" if is_short else self.name


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What the reference page says of one metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    sentence: str


class DataclassInstance(Protocol):
    __dataclass_fields__: ClassVar[dict[str, "dataclasses.Field[Any]"]]


class Metrics:
    """Every number of one node. The node owns it, parts register with it, `/metrics` renders it."""

    def __init__(self, *, with_process: bool = False) -> None:
        self._groups: list[tuple[str, DataclassInstance]] = []
        self._families: list[Family] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Scrape(lambda: self._collect_but(self._labelled())))
        if with_process:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)

    def register(self, group: DataclassInstance) -> None:
        """Show the declared fields of `group`. Two groups must not share a name."""
        self._groups.append((_prefix_of(group), group))

    def register_family(self, family: Family) -> None:
        self._families.append(family)

    def collect(self) -> Iterator[Metric]:
        return self._collect_but(())

    def declared(self) -> list[Declared]:
        """What there is, for the reference page."""
        fields = [
            Declared(name=prefix + field.name, kind=field.metadata["kind"], sentence=field.metadata["sentence"])
            for prefix, group in self._groups
            for field in _declared_fields(group)
        ]
        families = [
            Declared(name=family.shown_name, kind=family.kind, labels=family.labels, sentence=family.sentence)
            for family in self._families
        ]
        return fields + families

    def snapshot(self) -> dict[str, float]:
        """Every unlabelled number by name, for doors that answer in JSON. Leaves out the process's own."""
        return {
            sample.name: sample.value
            for metric in self._collect_but(self._labelled())
            for sample in metric.samples
            if not sample.labels
        }

    def render(self, *, samples_max: int | None = None) -> bytes:
        """The Prometheus text format, version 0.0.4; of a number with labels the first `samples_max`."""
        return b"".join(self.render_in_steps(samples_max=samples_max))

    def render_in_steps(self, *, samples_max: int | None = None) -> Iterator[bytes]:
        """The same, piece by piece: fifty thousand groups have as many numbers, and others want their turns in between."""
        for family in self._labelled():
            yield from _render_family(family, samples_max)
        yield generate_latest(self._registry)

    def _labelled(self) -> list[Family]:
        """Families with any number of samples."""
        return [family for family in self._families if family.labels]

    def _collect_but(self, left_out: Sequence[Family]) -> Iterator[Metric]:
        for prefix, group in self._groups:
            for field in _declared_fields(group):
                yield _metric_of(prefix + field.name, field.metadata, getattr(group, field.name))
        for family in self._families:
            if family not in left_out:
                yield _metric_of_family(family, family.samples())


def _prefix_of(group: DataclassInstance) -> str:
    prefix: str = getattr(group, "PREFIX", PREFIX)
    return prefix


def _declared_fields(group: DataclassInstance) -> Iterator["dataclasses.Field[Any]"]:
    return (field for field in dataclasses.fields(group) if "kind" in field.metadata)


def _metric_of(name: str, metadata: Any, value: Any) -> Metric:  # Any: a dataclass field's own metadata and value
    sentence: str = metadata["sentence"]
    match metadata["kind"]:
        case "counter":
            return CounterMetricFamily(name, sentence, value=value)
        case "latency":
            return _metric_of_latency(name, sentence, value)
        case "histogram":
            return HistogramMetricFamily(name, sentence, buckets=value.cumulative(), sum_value=value.total)
        case _:
            return GaugeMetricFamily(name, sentence, value=value)


def _metric_of_latency(name: str, sentence: str, window: LatencyWindow) -> Metric:
    metric = Metric(name, sentence, "gauge")
    for percent in PERCENTILES:
        metric.add_sample(f"{name}_p{percent}", {}, window.percentile(percent))
    return metric


def _metric_of_family(family: Family, samples: Iterable[Sample]) -> Metric:
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.sentence, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, value)
    return metric


def _render_family(family: Family, samples_max: int | None) -> Iterator[bytes]:
    samples = islice(family.samples(), samples_max)
    is_first = True
    while (step := list(islice(samples, STEP_SAMPLES))) or is_first:
        metric = _metric_of_family(family, step)
        text: bytes = generate_latest(_Scrape(lambda metric=metric: iter([metric])))  # type: ignore[misc]
        # HELP and TYPE come once for each name.
        yield text if is_first else b"".join(line for line in text.splitlines(True) if not line.startswith(b"#"))
        is_first = False


class _Scrape(Collector):
    """What prometheus_client asks for samples."""

    def __init__(self, samples: Callable[[], Iterator[Metric]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        return self._samples()
