"""Results as a picture: one panel per headline metric, a group of bars per case, a colour per broker."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace.bench.errors import BenchError
from headrace.bench.results import METRICS, Row


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    workload: str
    metric: str
    title: str
    is_logarithmic: bool = False


PANELS: Final = (
    Panel(workload="w1", metric="produce_rate", title="Produce at full speed"),
    Panel(workload="w1", metric="consume_rate", title="Consume at full speed"),
    Panel(workload="w1", metric="produce_cpu", title="Broker CPU, produce"),
    Panel(workload="w2", metric="ack_p99", title="Acknowledgement p99", is_logarithmic=True),
    Panel(workload="w2", metric="end_to_end_p99", title="End to end p99", is_logarithmic=True),
    Panel(workload="w8", metric="request_cpu", title="Broker CPU per request", is_logarithmic=True),
    Panel(workload="w5", metric="resident", title="Memory by partitions"),
    Panel(workload="w5", metric="restart_seconds", title="Restart by partitions", is_logarithmic=True),
    Panel(workload="idle", metric="connection_bytes", title="Memory per idle connection"),
)

_COLOURS: Final = {"headrace": "#0b6e8a", "kafka": "#b9b4a7", "kafka durable": "#6d675a"}
_OTHER_COLOUR: Final = "#c77d2e"
_PANELS_PER_LINE: Final = 3


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write an SVG of those panels that `rows` has figures for."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchError("no plot: matplotlib is not installed (it comes with headrace's dev extra)") from error
    panels = [panel for panel in PANELS if any(_shows(panel, row) for row in rows)]
    if not panels:
        return
    lines = -(-len(panels) // _PANELS_PER_LINE)
    # Ids and dates out: drawing the same results twice must give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "headrace", "font.size": 8, "svg.fonttype": "none"}):
        figure = Figure(figsize=(12, 3.4 * lines), layout="constrained")
        places = figure.subplots(lines, _PANELS_PER_LINE, squeeze=False).flat
        for place, panel in zip(places, panels, strict=False):
            _draw_panel(place, panel, [row for row in rows if _shows(panel, row)])
        for place in list(figure.axes)[len(panels) :]:
            place.set_visible(False)
        handles, labels = _legend(figure)
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _shows(panel: Panel, row: Row) -> bool:
    return row.workload == panel.workload and panel.metric in row.spreads


def _draw_panel(place: Any, panel: Panel, rows: Sequence[Row]) -> None:  # matplotlib is untyped
    cases = list(dict.fromkeys(row.case for row in rows))
    rivals = list(dict.fromkeys(row.rival for row in rows))
    width = 0.8 / len(rivals)
    for nth, rival in enumerate(rivals):
        own = {row.case: row.spreads[panel.metric] for row in rows if row.rival == rival}
        shown = [case for case in cases if case in own]
        medians = [own[case].median for case in shown]
        below = [own[case].median - own[case].low for case in shown]
        above = [own[case].high - own[case].median for case in shown]
        where = [cases.index(case) - 0.4 + width * (nth + 0.5) for case in shown]
        colour = _COLOURS.get(rival, _OTHER_COLOUR)
        place.bar(where, medians, width * 0.92, label=rival, color=colour)
        place.errorbar(where, medians, yerr=(below, above), fmt="none", ecolor="#222222", elinewidth=0.8, capsize=2)
    metric = METRICS[panel.metric]
    better = "lower" if metric.is_lower_better else "higher"
    place.set_title(f"{panel.title} ({metric.unit}, {better} is better)", fontsize=9)
    place.set_xticks(range(len(cases)), cases)
    if panel.is_logarithmic:
        place.set_yscale("log")
    place.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any) -> tuple[list[Any], list[str]]:  # matplotlib is untyped
    found: dict[str, Any] = {}
    for place in figure.axes:
        for handle, label in zip(*place.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
