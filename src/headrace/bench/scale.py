"""How long and how much: one value that every workload reads. `FULL` is what is published, `QUICK` a look."""

from typing import Final

import msgspec

CUSTOM: Final = "custom"
"""Name of a scale that was changed by hand: neither a quick look nor what is published by default."""

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and durations of one run of the benchmark."""

    name: str
    rounds: int
    produce_bytes: int
    """W1: bytes of one measured produce phase, and of the consume phase behind it."""
    warm_up_bytes: int
    producers: int
    consumers: int
    window_seconds: float
    """W2: length of one open-loop window."""
    latency_rounds: int
    partition_seconds: float
    """W5: length of one open-loop window."""
    fresh_rounds: int
    """W5 and idle: rounds of cases that start a broker each."""
    request_seconds: float
    """W8: length of one closed-loop window."""
    warm_up_seconds: float
    partition_counts: tuple[int, ...]
    idle_connections: int
    idle_seconds: float
    backlog_bytes: int
    """W3 and W4: bytes that wait in the bucket to be caught up on. More than the read cache holds."""
    scan_bytes: int
    """W10: bytes that Spark reads."""
    freshness_seconds: float
    """W9: how long records flow into a table before the pipeline is killed."""


FULL: Final = Scale(
    name="full",
    rounds=3,
    produce_bytes=2048 * MIB,
    warm_up_bytes=256 * MIB,
    producers=2,
    consumers=2,
    window_seconds=60.0,
    latency_rounds=5,
    partition_seconds=20.0,
    fresh_rounds=3,
    request_seconds=15.0,
    warm_up_seconds=5.0,
    partition_counts=(1, 100, 1_000, 10_000),
    idle_connections=10_000,
    idle_seconds=5.0,
    backlog_bytes=2048 * MIB,
    scan_bytes=1024 * MIB,
    freshness_seconds=900.0,
)

QUICK: Final = Scale(
    name="quick",
    rounds=3,
    produce_bytes=256 * MIB,
    warm_up_bytes=32 * MIB,
    producers=2,
    consumers=2,
    window_seconds=4.0,
    latency_rounds=3,
    partition_seconds=4.0,
    fresh_rounds=3,
    request_seconds=2.0,
    warm_up_seconds=1.0,
    partition_counts=(1, 1_000),
    idle_connections=2_000,
    idle_seconds=1.0,
    backlog_bytes=512 * MIB,
    scan_bytes=256 * MIB,
    freshness_seconds=60.0,
)


def adjust(scale: Scale, *, rounds: int | None, seconds: float | None) -> Scale:
    """`scale` with another number of rounds, or another length of every window."""
    if rounds is not None:
        scale = msgspec.structs.replace(scale, name=CUSTOM, rounds=rounds, latency_rounds=rounds, fresh_rounds=rounds)
    if seconds is not None:
        scale = msgspec.structs.replace(
            scale,
            name=CUSTOM,
            window_seconds=seconds,
            request_seconds=seconds,
            partition_seconds=seconds,
            freshness_seconds=seconds,
        )
    return scale
