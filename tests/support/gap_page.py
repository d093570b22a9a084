"""How long a partition acknowledged nothing, fault by fault: printed, and kept on a page where `make chaos-cluster` says which.

A row is of the last run of that fault; those of other faults stay as they are.
"""

import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_BEGIN: Final = """# Faults of a cluster

Written by `make chaos-cluster`. Three machines in network namespaces or three brokers on one, an idempotent librdkafka producer that asks
again after 50 to 200 ms. The gap of a round is the longest that a partition acknowledged nothing while the fault struck the broker that led most,
until every partition acknowledged again. In every round that is counted, nothing was lost, doubled or out of order. The load is that of the machine when the
row was written (1 minute, both cores shared by everything); bars are those of a machine that does nothing else.

| fault | rounds | median | p99 | longest | bar | load | when |
|---|---|---|---|---|---|---|---|
"""


def noted(fault: str, gaps: Sequence[float], *, bar_s: float | None = None) -> str:
    """The gaps in a sentence."""
    ordered = sorted(gaps)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    median, longest = statistics.median(ordered), ordered[-1]
    if (page := os.environ.get("HEADRACE_TEST_PAGE")) is not None:
        bar = "" if bar_s is None else f"{bar_s:.0f} s{'' if longest <= bar_s else ', missed'}"
        cells = (fault, str(len(ordered)), f"{median:.2f} s", f"{p99:.2f} s", f"{longest:.2f} s", bar)
        _write(Path(page), fault, (*cells, f"{os.getloadavg()[0]:.1f}", f"{datetime.now(UTC):%Y-%m-%d %H:%M}"))
    return f"gap of median {median:.2f} s, p99 {p99:.2f} s, longest {longest:.2f} s of {len(ordered)}"


def _write(page: Path, fault: str, cells: Sequence[str]) -> None:
    lines = page.read_text().splitlines() if page.exists() else []
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ") and " s |" in line}
    rows[fault] = f"| {' | '.join(cells)} |"
    page.write_text(_BEGIN + "".join(f"{rows[name]}\n" for name in sorted(rows)))
