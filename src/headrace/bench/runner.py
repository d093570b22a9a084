"""Runs workloads over rivals: interleaved, several rounds.

Every case warms up by itself; the first round of a run, over brokers just started, is thrown away whole.

Brokers that cases share are started once and stay up, so that a virtual machine has compiled what it will; while one
works, the others rest. Cases that want a fresh broker get one alone.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from headrace.bench.case import Case, Workload
from headrace.bench.errors import LoadFailed, RivalFailed
from headrace.bench.host import describe_machine
from headrace.bench.results import Failure, Measurement, Results
from headrace.bench.rivals import Broker, Rival
from headrace.bench.scale import Scale


class Progress(Protocol):
    """Told of every step; a run takes minutes to hours."""

    def begin(self, steps: int) -> None: ...

    def step(self, what: str) -> None:
        """`what` is about to be measured."""
        ...


def run_benchmark(
    workloads: Sequence[Workload],
    rivals: Sequence[Rival],
    scale: Scale,
    *,
    directory: Path,
    progress: Progress,
) -> Results:
    """Measure every case of every workload for every rival. Brokers write below `directory`."""
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(directory)
    run = _Run(rivals, scale, directory, progress)
    shared = [workload for workload in workloads if not _is_fresh(workload, scale)]
    fresh = [workload for workload in workloads if _is_fresh(workload, scale)]
    steps = sum(workload.rounds(scale) * run.turns(workload) for workload in workloads)
    progress.begin(steps + (run.turns(shared[0]) if shared else 0))
    with ExitStack() as stack:
        brokers = [stack.enter_context(run.broker(rival)) for rival in rivals] if shared else []
        for workload in shared:
            run.measure_shared(workload, brokers, is_warm=workload is not shared[0])
    for workload in fresh:
        run.measure_fresh(workload)
    return Results(
        scale=scale.name,
        started_at=started_at,
        machine=machine,
        measurements=run.measurements,
        failures=run.failures,
    )


class _Run:
    def __init__(self, rivals: Sequence[Rival], scale: Scale, directory: Path, progress: Progress) -> None:
        self.measurements: list[Measurement] = []
        self.failures: list[Failure] = []
        self._rivals = rivals
        self._scale = scale
        self._directory = directory
        self._progress = progress

    def turns(self, workload: Workload) -> int:
        """Measurements of one round: a rival sits out the cases at doors it does not have."""
        return sum(case.door in rival.doors for case in workload.cases(self._scale) for rival in self._rivals)

    def measure_shared(self, workload: Workload, brokers: Sequence[Broker], *, is_warm: bool) -> None:
        for round_index in range(1 if is_warm else 0, workload.rounds(self._scale) + 1):
            for case in workload.cases(self._scale):
                for rival, broker in zip(self._rivals, brokers, strict=True):
                    if case.door in rival.doors:
                        self._measure(case, rival, broker, round_index)

    def measure_fresh(self, workload: Workload) -> None:
        # No round is thrown away: a new broker is cold however many came before it.
        for round_index in range(1, workload.rounds(self._scale) + 1):
            for case in workload.cases(self._scale):
                for rival in self._rivals:
                    if case.door not in rival.doors:
                        continue
                    try:
                        with self.broker(rival) as broker:
                            self._measure(case, rival, broker, round_index)
                    except RivalFailed as error:
                        self._fail(case, rival, error)

    @contextmanager
    def broker(self, rival: Rival) -> Iterator[Broker]:
        directory = self._directory / rival.name.replace(" ", "-")
        shutil.rmtree(directory, ignore_errors=True)
        broker = rival.launch(directory)
        try:
            yield broker
        finally:
            broker.stop()
            shutil.rmtree(directory, ignore_errors=True)
            os.sync()

    def _measure(self, case: Case, rival: Rival, broker: Broker, round_index: int) -> None:
        is_warm_up = round_index == 0
        self._progress.step(f"{case.workload} {case.name}, {rival.name}, {'warm-up' if is_warm_up else round_index}")
        try:
            metrics = case.measure(broker, self._scale)
        except (LoadFailed, RivalFailed) as error:
            self._fail(case, rival, error)
            return
        if not is_warm_up:
            self.measurements.append(
                Measurement(
                    workload=case.workload,
                    case=case.name,
                    rival=rival.name,
                    fsync=rival.fsync,
                    round=round_index,
                    metrics=metrics,
                )
            )

    def _fail(self, case: Case, rival: Rival, error: Exception) -> None:
        self.failures.append(
            Failure(
                workload=case.workload,
                case=case.name,
                rival=rival.name,
                fsync=rival.fsync,
                reason=str(error),
            )
        )


def _is_fresh(workload: Workload, scale: Scale) -> bool:
    return any(case.is_fresh for case in workload.cases(scale))
