"""Runs workloads over rivals: interleaved, several rounds.

Every case warms up by itself; the first round of a run, over brokers just started, is thrown away whole.

Brokers that cases share are started once and stay up, so that a virtual machine has compiled what it will; while one
works, the others rest. Cases that want a fresh broker get one alone.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from headrace.bench.case import Case, Workload
from headrace.bench.errors import LoadFailed, RivalFailed, RivalUnavailable
from headrace.bench.host import describe_machine
from headrace.bench.results import Failure, Measurement, Results
from headrace.bench.rivals import Broker, Rival
from headrace.bench.scale import GIB, Scale

_FREE_BYTES_MIN: Final = 4 * GIB
"""What one case can write in a window of three seconds. Objects of its topics stay for an hour after the topics are deleted."""


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
    keep: Callable[[Results], object] = lambda _: None,
) -> Results:
    """Measure every case of every workload for every rival. Brokers write below `directory`.

    `keep` gets what there is whenever a workload is done: a run of hours must not lose everything at its end.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = describe_machine(directory)

    def so_far() -> Results:
        return Results(
            scale=scale.name,
            started_at=started_at,
            machine=machine,
            measurements=list(run.measurements),
            failures=list(run.failures),
        )

    run = _Run(rivals, scale, directory, progress, workload_done=lambda: keep(so_far()))
    shared = _by_rivals(workload for workload in workloads if not _is_fresh(workload, scale))
    fresh = [workload for workload in workloads if _is_fresh(workload, scale)]
    steps = sum(workload.rounds(scale) * run.turns(workload) for workload in workloads)
    progress.begin(steps + sum(run.turns(group[0]) for group in shared))
    for group in shared:
        run.measure_shared(group)
    for workload in fresh:
        run.measure_fresh(workload)
    return so_far()


class _Run:
    def __init__(
        self,
        rivals: Sequence[Rival],
        scale: Scale,
        directory: Path,
        progress: Progress,
        *,
        workload_done: Callable[[], object],
    ) -> None:
        self.measurements: list[Measurement] = []
        self.failures: list[Failure] = []
        self._rivals = rivals
        self._scale = scale
        self._directory = directory
        self._progress = progress
        self._workload_done = workload_done

    def turns(self, workload: Workload) -> int:
        """Measurements of one round: a rival sits out the cases at doors it does not have."""
        return sum(
            case.door in rival.doors for case in workload.cases(self._scale) for rival in self._rivals_of(workload)
        )

    def measure_shared(self, workloads: Sequence[Workload]) -> None:
        """Workloads over the same rivals, which stay up for all of them."""
        rivals = self._rivals_of(workloads[0])
        with ExitStack() as stack:
            try:
                brokers = [stack.enter_context(self.broker(rival)) for rival in rivals]
            except (RivalFailed, RivalUnavailable) as error:
                for workload in workloads:
                    self._fail_all(workload, error)
                return
            for workload in workloads:
                self._take_turns(
                    workload, list(zip(rivals, brokers, strict=True)), is_warm=workload is not workloads[0]
                )
                self._workload_done()

    def _take_turns(self, workload: Workload, turns: Sequence[tuple[Rival, Broker]], *, is_warm: bool) -> None:
        for round_index in range(1 if is_warm else 0, workload.rounds(self._scale) + 1):
            for case in workload.cases(self._scale):
                for rival, broker in turns:
                    if case.door in rival.doors:
                        self._measure(case, rival, broker, round_index)

    def measure_fresh(self, workload: Workload) -> None:
        # No round is thrown away: a new broker is cold however many came before it.
        for round_index in range(1, workload.rounds(self._scale) + 1):
            for case in workload.cases(self._scale):
                for rival in self._rivals_of(workload):
                    if case.door not in rival.doors:
                        continue
                    try:
                        with self.broker(rival) as broker:
                            self._measure(case, rival, broker, round_index)
                    except (RivalFailed, RivalUnavailable) as error:
                        self._fail(case, rival, error)
        self._workload_done()

    @contextmanager
    def broker(self, rival: Rival) -> Iterator[Broker]:
        directory = self._directory / rival.name.replace(" ", "-")
        shutil.rmtree(directory, ignore_errors=True)
        broker = rival.launch(directory)
        try:
            yield broker
        finally:
            broker.close()
            shutil.rmtree(directory, ignore_errors=True)
            os.sync()

    def _measure(self, case: Case, rival: Rival, broker: Broker, round_index: int) -> None:
        is_warm_up = round_index == 0
        self._progress.step(f"{case.workload} {case.name}, {rival.name}, {'warm-up' if is_warm_up else round_index}")
        try:
            _require_room(self._directory)
            metrics = case.measure(broker, self._scale)
        except (LoadFailed, RivalFailed, RivalUnavailable) as error:
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

    def _rivals_of(self, workload: Workload) -> Sequence[Rival]:
        return self._rivals if workload.rivals is None else workload.rivals

    def _fail_all(self, workload: Workload, error: Exception) -> None:
        for case in workload.cases(self._scale):
            for rival in self._rivals_of(workload):
                if case.door in rival.doors:
                    self._fail(case, rival, error)

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


def _require_room(directory: Path) -> None:
    """A full disk ends one broker, slows another down and lets a third go on: nothing is comparable any more."""
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < _FREE_BYTES_MIN:
        raise LoadFailed(
            f"only {free_bytes / GIB:.1f} GiB of the disk are free, and a case may write {_FREE_BYTES_MIN // GIB}: "
            "shorter windows write less, --output takes another disk"
        )


def _by_rivals(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Those that share their brokers together, in order of first appearance."""
    groups: dict[int, list[Workload]] = {}
    for workload in workloads:
        groups.setdefault(id(workload.rivals), []).append(workload)
    return list(groups.values())


def _is_fresh(workload: Workload, scale: Scale) -> bool:
    return any(case.is_fresh for case in workload.cases(scale))
