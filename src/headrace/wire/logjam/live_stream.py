"""What dashboards are told every second: how many requests, how long they took, and what went wrong (X2.11).

    "app-env,module"   {"count": 3, "page_count": 0, "ajax_count": 0, "total_time": 120.5, "db_time": 14.0, ...}
    "app-env,module"   [{"request_id": ..., "severity": 3, "action": ..., "response_code": 500, "time": ..., "description": ...}]

Keys are in lower case; the module has no `::` in front, and `all_pages` stands for the whole application. A module once
seen is told of every second, with zeros while it is quiet, so that a plot goes on. Pages, codes and times have the defaults
of X2.9. Time comes as an argument.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from headrace.wire.logjam.names import Stream

ALL_PAGES: Final = "all_pages"
MODULES_MAX: Final = 10_000
"""Modules that are told of at once: their names come from the network."""
ERRORS_MAX: Final = 100
"""Errors that are told of in one second: a dashboard shows the newest few, and a bad deployment has thousands."""
FORGET_MS: Final = 60 * 60 * 1000
"""A module that was quiet for this long is not told of any more."""
DESCRIPTION_CHARACTERS_MAX: Final = 1_000
NAME_CHARACTERS_MAX: Final = 200
_METRIC_MAX: Final = 1e15
"""Larger ones are no time and no count, and would spoil a sum."""
_SEVERITY_TOLD: Final = 2
_DEFAULT_PAGE: Final = "Unknown#unknown_method"

# Any: a request's JSON holds whatever the application put there.
Fields = dict[str, Any]


class _Module:
    """One key of the stream: what has come since the last second."""

    __slots__ = ("counts", "seen_ms", "sums")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sums: dict[str, float] = {}
        self.seen_ms = 0

    def take_json(self) -> bytes:
        document = {name: self.counts[name] for name in ("count", "page_count", "ajax_count")} | self.sums
        self.counts.clear()
        self.sums = {}
        return msgspec.json.encode(document)


class LiveStream:
    """Feed it requests with `add`; once a second, `drain` what is to be published."""

    def __init__(self) -> None:
        self._modules: dict[str, _Module] = {}
        self._errors: list[list[bytes]] = []

    def add(self, stream: Stream, topic: bytes, fields: Fields, *, now_ms: int) -> None:
        """A request of an application, or what a browser measured; other messages are not for dashboards."""
        kind = _count_name(topic)
        if kind is None:
            return
        page = _page_of(fields)
        keys = [f"{stream.app_env},{name}".lower() for name in (ALL_PAGES, _module_of(page))]
        metrics = _metrics_of(fields)
        for key in keys:
            module = self._modules.get(key)
            if module is None:
                if len(self._modules) >= MODULES_MAX:
                    continue
                module = self._modules[key] = _Module()
            module.seen_ms = now_ms
            module.counts[kind] += 1
            for name, value in metrics.items():
                module.sums[name] = module.sums.get(name, 0.0) + value
        if kind == "count" and len(self._errors) < ERRORS_MAX:
            error = _error_of(fields, page)
            if error is not None:
                self._errors += [[key.encode(), error] for key in keys]

    def drain(self, *, now_ms: int) -> list[list[bytes]]:
        """The second's messages, as frames."""
        for key in [key for key, module in self._modules.items() if now_ms - module.seen_ms > FORGET_MS]:
            del self._modules[key]
        messages = [[key.encode(), module.take_json()] for key, module in self._modules.items()]
        errors, self._errors = self._errors, []
        return messages + errors


def _count_name(topic: bytes) -> str | None:
    if topic.startswith(b"logs"):
        return "count"
    if topic.startswith(b"frontend.page"):
        return "page_count"
    return "ajax_count" if topic.startswith(b"frontend.ajax") else None


def _page_of(fields: Fields) -> str:
    action = fields.get("action") or fields.get("logjam_action")
    if not isinstance(action, str) or not action.strip():
        return _DEFAULT_PAGE
    action = action[:NAME_CHARACTERS_MAX]
    return action if "#" in action else f"{action}#unknown_method"


def _module_of(page: str) -> str:
    return page.partition("#")[0].partition(":")[0]


def _metrics_of(fields: Fields) -> dict[str, float]:
    metrics = {
        name: float(value)
        for name, value in fields.items()
        if name.endswith(("_time", "_calls")) and isinstance(value, int | float) and 0 < value < _METRIC_MAX
    }
    metrics.setdefault("total_time", 1.0)
    return metrics


def _error_of(fields: Fields, page: str) -> bytes | None:
    """One request that somebody should look at, or None if there is nothing to see or no way to find it."""
    request_id = fields.get("request_id")
    given = fields.get("lines")
    lines = [line for line in given if isinstance(line, list) and len(line) > 2] if isinstance(given, list) else []
    worst = max((line[0] for line in lines if isinstance(line[0], int)), default=1)
    severity = fields.get("severity", worst)
    if not isinstance(request_id, str) or not isinstance(severity, int) or severity < _SEVERITY_TOLD:
        return None
    code, time = fields.get("code"), fields.get("started_at")
    said = next((str(line[2]) for line in lines if isinstance(line[0], int) and line[0] >= severity), "")
    return msgspec.json.encode(
        [
            {
                "request_id": request_id[:NAME_CHARACTERS_MAX],
                "severity": severity,
                "action": page,
                "response_code": code if isinstance(code, int) else 500,
                "time": time[:NAME_CHARACTERS_MAX] if isinstance(time, str) else "",
                "description": said[:DESCRIPTION_CHARACTERS_MAX] or "------ unknown ------",
            }
        ]
    )
