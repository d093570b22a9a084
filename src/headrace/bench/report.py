"""Results as a page: tables in Markdown between two marks, around which people may write what they like."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.bench.bars import BARS, OURS, judge
from headrace.bench.case import Workload
from headrace.bench.results import METRICS, Machine, Results, Row, Spread, summarise

BEGIN_MARK: Final = "<!-- bench: written by `headrace bench`, do not edit below -->"
END_MARK: Final = "<!-- bench: end -->"

_NEW_PAGE: Final = f"""\
# Benchmarks

{BEGIN_MARK}
{END_MARK}
"""


def update_page(page: Path, sections: Sequence[tuple[Workload, Results]], *, plot: str | None) -> None:
    """Write what was measured into the generated part of `page`.

    What stands outside the marks stays, and so do workloads that were published before and have no results here: those of
    another machine, or of another checkout.
    """
    text = page.read_text() if page.exists() else _NEW_PAGE
    before, _, rest = text.partition(BEGIN_MARK)
    published, _, after = rest.partition(END_MARK)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{before}{BEGIN_MARK}\n\n{render(sections, plot=plot, published=published)}\n{END_MARK}{after}")


def render(sections: Sequence[tuple[Workload, Results]], *, plot: str | None, published: str = "") -> str:
    parts = [f"![headrace beside Apache Kafka]({plot})\n"] if plot else []
    kept = _sections_of(published)
    measured = {workload.name.upper(): _section(workload, results) for workload, results in sections}
    rows = [row for _, results in sections for row in summarise(results.measurements)]
    parts += _bars(rows, [line for line in _bar_lines(kept.pop("Bars", "")) if _workload_of(line) not in measured])
    parts += (kept | measured).values()
    return "\n".join(parts)


def _section(workload: Workload, results: Results) -> str:
    heading = f"## {workload.name.upper()}: {workload.title}\n"
    return "\n".join([heading, f"{workload.question}\n", _table(results), _provenance(results)])


def _sections_of(published: str) -> dict[str, str]:
    """By the name of the workload, or `Bars`, in the order of the page."""
    parts = re.split(r"^(?=## )", published, flags=re.MULTILINE)[1:]
    return {re.split(r"[:\n]", part.removeprefix("## "), maxsplit=1)[0]: part.rstrip("\n") + "\n" for part in parts}


def _bar_lines(section: str) -> list[str]:
    return [line for line in section.splitlines() if line.startswith("| ") and _workload_of(line) != "workload"]


def _workload_of(line: str) -> str:
    return line.split("|")[1].strip()


def cell(name: str, spread: Spread) -> str:
    """The median, and from where to where the rounds went."""
    decimals = METRICS[name].decimals
    return f"{spread.median:,.{decimals}f} ({spread.low:,.{decimals}f} - {spread.high:,.{decimals}f})"


def columns_of(rows: Sequence[Row]) -> list[str]:
    return [name for name in METRICS if any(name in row.spreads for row in rows)]


def _bars(rows: Sequence[Row], kept: Sequence[str]) -> list[str]:
    """In the order of `BARS` by workload; `kept` are lines of workloads that were not measured."""
    verdicts = judge(rows)
    if not verdicts and not kept:
        return []
    lines = ["## Bars\n", "| workload | case | bar | found | met |", "|---|---|---|---|---|"]
    for verdict in verdicts:
        bar = verdict.bar
        found = f"{verdict.found:,.2f} {'x' if bar.is_relative else METRICS[bar.metric].unit}"
        met = "yes" if verdict.is_met else "**no**"
        case = bar.case if bar.broker == OURS else f"{bar.case}, {bar.broker}"
        lines.append(f"| {bar.workload.upper()} | {case} | {verdict.describe()} | {found} | {met} |")
    order = list(dict.fromkeys(bar.workload.upper() for bar in BARS))
    body = sorted([*lines[3:], *kept], key=lambda line: order.index(_workload_of(line)))
    return [*lines[:3], *body, ""]


def _table(results: Results) -> str:
    rows = summarise(results.measurements)
    names = columns_of(rows)
    titles = ["case", "broker", "fsync", *(f"{METRICS[name].title}, {METRICS[name].unit}" for name in names)]
    lines = [_line(titles), _line(["---"] * 3 + ["---:"] * len(names))]
    for row in rows:
        cells = [cell(name, row.spreads[name]) if name in row.spreads else "" for name in names]
        lines.append(_line([row.case, row.rival, row.fsync, *cells]))
    for failure in {(one.case, one.rival, one.fsync, one.reason): one for one in results.failures}.values():
        reason = failure.reason.partition("\n")[0].replace("|", "/")
        lines.append(_line([failure.case, failure.rival, failure.fsync, f"no figure: {reason}"]))
    return "\n".join(lines) + "\n"


def _provenance(results: Results) -> str:
    rounds = max((one.round for one in results.measurements), default=0)
    return (
        f"Median of {rounds} interleaved rounds (lowest - highest); profile `{results.scale}`, "
        f"{results.started_at}. {_describe(results.machine)}\n"
    )


def _describe(machine: Machine) -> str:
    return (
        f"{machine.cores} cores of {machine.processor}, {machine.memory_gib} GiB, {machine.kernel}, "
        f"{machine.file_system} whose fdatasync of 4 KiB takes {machine.flush_ms:.2f} ms; TCP congestion control: "
        f"{machine.congestion}; {machine.python}; "
        f"{machine.java}; Apache Kafka {machine.kafka}; headrace {machine.headrace}. Load and broker share the cores."
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
