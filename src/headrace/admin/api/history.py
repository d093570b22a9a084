"""The last day of the node's numbers, for charts."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.errors import ResourceNotFound
from headrace.telemetry.history import Points


class ReadHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: Annotated[str, Meta(max_length=1000)] = ""
    """Series, with commas between; all of them unless given."""
    minutes: Annotated[int, Meta(ge=1, le=1440)] = 60
    points: Annotated[int, Meta(ge=2, le=1000)] = 240
    """At most so many of each series: rates are averaged over what lies between two."""


class HistoryList(msgspec.Struct, frozen=True, kw_only=True):
    series: list[Points]


async def read_history(request: ReadHistory, call: Call) -> HistoryList:
    history = call.parts.history
    names = [name.strip() for name in request.names.split(",")] if request.names else history.names
    since_ms = call.broker.clock.now_ms() - request.minutes * 60_000
    for name in names:
        if name not in history.names:
            raise ResourceNotFound(f"no series {name!r}; there are {', '.join(history.names)}")
    return HistoryList(series=[history.points(name, since_ms=since_ms, points_max=request.points) for name in names])
