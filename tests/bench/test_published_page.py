"""What docs/benchmarks.md promises of the last run on a quiet machine."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
LATENCY = re.compile(r"^\| W2 \| (?P<load>[^|]+) \| ack p99 at most 10 ms \| (?P<found>[\d.]+) ms \|", re.MULTILINE)


def test_acknowledgements_take_single_digit_milliseconds_at_a_stated_load() -> None:
    found = {match["load"]: float(match["found"]) for match in LATENCY.finditer(PAGE.read_text())}
    assert found.keys() == {"10 MiB/s", "1,000 records/s"}
    assert max(found.values()) < 10
