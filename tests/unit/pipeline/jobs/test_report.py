"""The report's charts over rows as Spark collects them."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.pipeline.jobs.report import duration_chart, request_table, resource_chart, response_chart

LABELS = ["10:00", "10:01"]


class Minute(SimpleNamespace):
    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


ROWS = [
    Minute(
        count=10,
        sums={"total_time": 500.0, "db_time": 200.0, "redis_time": 30.0, "db_calls": 9.0},
        responses={"200": 7, "302": 1, "500": 2},
        heatmap={"30": 6, "100": 4},
    ),
    Minute(count=0, sums=None, responses=None, heatmap=None),
]


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(chart).iter("text")]


@pytest.mark.requirement("X2.11")
def test_resources_responses_and_durations_are_plotted_per_minute() -> None:
    resources = texts(resource_chart(LABELS, ROWS))
    assert "db_time" in resources
    assert "redis_time" in resources
    assert "20 ms" in resources, "200 ms in ten requests"
    assert "total_time" not in resources
    assert {"2xx", "3xx", "5xx"} <= set(texts(response_chart(LABELS, ROWS)))
    durations = duration_chart(LABELS, ROWS)
    assert [text for text in texts(durations) if text.endswith("ms")] == ["30 ms", "100 ms"]
    assert durations.count("<rect") == 2
    assert 'fill-opacity="1.00"' in durations


@pytest.mark.requirement("X2.11")
def test_requests_are_listed_with_why_they_are_and_how_to_find_them() -> None:
    row = SimpleNamespace(
        page="Cart#show",
        started_time=datetime(2026, 3, 1, 11, 59, 30),
        code=500,
        total_time=1234.5,
        severity=3,
        reasons=["server error", "slow"],
        request_id="ab",
    )
    assert request_table([row])["rows"] == [["Cart#show", "03-01 11:59:30", 500, "1234", 3, "server error, slow", "ab"]]


def test_charts_of_nothing_are_still_charts() -> None:
    for chart in (resource_chart([], []), response_chart([], []), duration_chart([], [])):
        ElementTree.fromstring(chart)
