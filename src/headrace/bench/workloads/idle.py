"""Idle connections: what a client costs that has said hello and nothing since."""

import time
from functools import partial
from typing import Final

from headrace.bench.case import Case, Workload
from headrace.bench.load.jobs import HoldConnectionsJob
from headrace.bench.load.process import run_load
from headrace.bench.rivals import Broker
from headrace.bench.scale import MIB, Scale

_DOORS: Final = ("kafka", "rustlog")


def _cases(scale: Scale) -> list[Case]:
    return [
        Case(
            workload="idle",
            name=f"{scale.idle_connections:,} connections, {door} door",
            measure=partial(_measure, door=door),
            door=door,
            is_fresh=True,
        )
        for door in _DOORS
    ]


WORKLOAD: Final = Workload(
    name="idle",
    title="Idle connections",
    question="How much memory do connections take that say nothing?",
    cases=_cases,
    rounds=lambda scale: scale.fresh_rounds,
)


def _measure(broker: Broker, scale: Scale, *, door: str) -> dict[str, float]:
    before = broker.read_usage().resident_bytes
    held: list[int] = []

    def look() -> None:
        time.sleep(scale.idle_seconds)
        held.append(broker.read_usage().resident_bytes)

    job = HoldConnectionsJob(bootstrap=broker.address_of(door), connections=scale.idle_connections, door=door)
    run_load([job], on_begin=look)
    growth = held[0] - before
    return {
        "resident": held[0] / MIB,
        "resident_growth": growth / MIB,
        "connection_bytes": growth / scale.idle_connections / 1024,
    }
