"""The live stream's second: totals per module and application, errors, and its bounds."""

import json
from typing import Any

import pytest

from headrace.wire.logjam import live_stream as module
from headrace.wire.logjam.live_stream import FORGET_MS, LiveStream
from headrace.wire.logjam.names import Stream

SHOP = Stream("Shop", "prod")
ID = "a" * 32


def drained(live: LiveStream, now_ms: int = 1_000) -> list[tuple[str, Any]]:
    return [(key.decode(), json.loads(body)) for key, body in live.drain(now_ms=now_ms)]


def request(**fields: Any) -> dict[str, Any]:
    return {"action": "Orders::Cart#show", "total_time": 50, "code": 200, "severity": 1, "request_id": ID, **fields}


@pytest.mark.requirement("X2.11")
def test_a_second_is_told_per_application_and_module_with_sums_and_counts() -> None:
    live = LiveStream()
    live.add(SHOP, b"logs.shop.prod", request(db_time=10, db_calls=2, severity=0), now_ms=1)
    live.add(SHOP, b"logs.shop.prod", request(db_time=5.5), now_ms=2)
    live.add(SHOP, b"logs.shop.prod", request(action="Home", total_time=0), now_ms=3)
    live.add(SHOP, b"frontend.page.x", request(total_time=None, page_time=400), now_ms=4)
    live.add(SHOP, b"frontend.ajax.x", request(), now_ms=5)
    live.add(SHOP, b"events", {"label": "deploy"}, now_ms=6)
    found = dict(drained(live))
    assert found == {
        "shop-prod,all_pages": {
            "count": 3,
            "page_count": 1,
            "ajax_count": 1,
            "total_time": 152.0,
            "db_time": 15.5,
            "db_calls": 2.0,
            "page_time": 400.0,
        },
        "shop-prod,orders": {
            "count": 2,
            "page_count": 1,
            "ajax_count": 1,
            "total_time": 151.0,
            "db_time": 15.5,
            "db_calls": 2.0,
            "page_time": 400.0,
        },
        "shop-prod,home": {"count": 1, "page_count": 0, "ajax_count": 0, "total_time": 1.0},
    }


def test_a_quiet_module_is_told_of_with_zeros_until_it_is_forgotten() -> None:
    live = LiveStream()
    live.add(SHOP, b"logs", request(), now_ms=0)
    live.drain(now_ms=1_000)
    nothing = {"count": 0, "page_count": 0, "ajax_count": 0}
    assert dict(drained(live, FORGET_MS)) == {"shop-prod,all_pages": nothing, "shop-prod,orders": nothing}
    assert drained(live, FORGET_MS + 1) == []


@pytest.mark.requirement("X2.11")
def test_errors_are_told_once_with_the_line_that_explains_them() -> None:
    live = LiveStream()
    lines = [[1, "t", "fine"], [3, "t", "boom"], [4, "t", "later"], "no line"]
    live.add(SHOP, b"logs", request(severity=3, code=500, lines=lines, started_at="2026-03-01T11:59:30"), now_ms=0)
    live.add(SHOP, b"logs", request(severity=1, lines=lines), now_ms=0)
    live.add(SHOP, b"logs", request(severity=4, request_id=None), now_ms=0)
    errors = [(key, body) for key, body in drained(live) if isinstance(body, list)]
    told = {
        "request_id": ID,
        "severity": 3,
        "action": "Orders::Cart#show",
        "response_code": 500,
        "time": "2026-03-01T11:59:30",
        "description": "boom",
    }
    assert errors == [("shop-prod,all_pages", [told]), ("shop-prod,orders", [told])]
    assert not any(isinstance(body, list) for _, body in drained(live))


def test_names_and_errors_from_the_network_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODULES_MAX", 5)
    monkeypatch.setattr(module, "ERRORS_MAX", 4)
    live = LiveStream()
    for index in range(100):
        live.add(SHOP, b"logs", request(action=f"Module{index}#x", severity=5), now_ms=0)
    found = drained(live)
    totals = {key: body for key, body in found if isinstance(body, dict)}
    assert len(totals) == 5
    assert totals["shop-prod,all_pages"]["count"] == 100
    assert len(found) - len(totals) == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"lines": 5},
        {"lines": [[None, None, None]]},
        {"severity": "high"},
        {"action": 7},
        {"code": None, "severity": 3},
        {"code": {"deep": []}, "severity": 3, "started_at": 5},
        {"total_time": 10**400},
        {"action": "x" * 100_000},
        {"x_time": "1"},
    ],
)
def test_whatever_an_application_sends_the_stream_goes_on(fields: dict[str, Any]) -> None:
    live = LiveStream()
    live.add(SHOP, b"logs", request(**fields), now_ms=0)
    totals = {key: body for key, body in drained(live) if isinstance(body, dict)}
    assert totals["shop-prod,all_pages"]["count"] == 1
