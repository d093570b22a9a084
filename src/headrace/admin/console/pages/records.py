"""Records of a topic: from either end, an offset or a time, filtered, followed; one alone, downloaded, sent again."""

import base64
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from headrace.admin.api.records import DecodedValue, Payload, RecordView
from headrace.admin.console.views import Asking, View, go_to
from headrace.errors import Conflict, Invalid, NotFound, Rejected

_HEX_SHOWN: Final = 4096


async def index(page: Asking) -> View:
    name = page.names["name"]
    topic = await page.ask("DescribeTopic", name=name)
    asked, problem = _asked(page), ""
    found: Any = None  # Any: the API's own type
    try:
        found = await page.ask("ReadRecords", name=name, **asked)
    except Invalid as error:
        # Shown beside the form, with what was typed still in it.
        problem = str(error)
    return View(
        "records.html",
        title=name,
        topic=topic,
        found=found,
        asked=asked,
        problem=problem,
        tab="records",
        preview=preview,
        brief=brief,
        place=found.partitions[0] if found is not None and len(found.partitions) == 1 else None,
    )


def _asked(page: Asking) -> dict[str, Any]:  # Any: fields of ReadRecords
    asked: dict[str, Any] = {"limit": min(max(page.number("limit", 50) or 50, 1), 500)}  # Any: as above
    if (partition := page.number("partition")) is not None and partition >= 0:
        asked["partition"] = partition
    start = page.query.get("start", "newest")
    asked["start"] = start if start in ("newest", "oldest", "offset", "time") else "newest"
    if asked["start"] == "offset":
        asked["offset"] = max(0, page.number("offset", 0) or 0)
    if asked["start"] == "time":
        asked["timestamp_ms"] = _time_ms(page.query.get("time", ""))
    if page.query.get("key"):
        asked["key"] = page.query["key"]
    asked["filter"] = page.query.get("filter", "")
    return asked


def _time_ms(text: str) -> int:
    """Milliseconds, or a moment in UTC as browsers' fields write it."""
    if text.isascii() and text.isdigit():
        return min(int(text), 2**63 - 1)
    try:
        return max(0, int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0


async def one(page: Asking) -> View:
    name = page.names["name"]
    record = await _record(page)
    topic = await page.ask("DescribeTopic", name=name)
    return View(
        "record.html",
        title=f"{name} {record.partition}/{record.offset}",
        topic=topic,
        record=record,
        tab="records",
        pretty=pretty(record.value),
        decoded=None if record.decoded is None or record.decoded.reason else indented(record.decoded.json),
        key_hex=hex_dump(record.key),
        value_hex=hex_dump(record.value),
        raw=raw,
    )


async def download(page: Asking) -> Response:
    record = await _record(page)
    payload = {"key": record.key, "value": record.value}.get(page.names["part"])
    if payload is None:
        raise NotFound("There is nothing to download.")
    name = f"{page.names['name']}-{record.partition}-{record.offset}.{page.names['part']}"
    headers = {
        # Whatever the bytes are, the browser must not try to show them.
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "cache-control": "no-store",
    }
    return Response(raw(payload), media_type="application/octet-stream", headers=headers)


async def _record(page: Asking) -> RecordView:
    partition, offset = _place(page)
    found: RecordView = await page.ask("DescribeRecord", name=page.names["name"], partition=partition, offset=offset)
    return found


async def produce(page: Asking) -> View:
    name, form = page.names["name"], page.form
    headers = [line.partition(":") for line in form.get("headers", "").splitlines() if line.strip()]
    fields: dict[str, Any] = {  # Any: fields of ProduceRecord
        "key": _new(form, "key"),
        "value": None if "tombstone" in form else {"data": "", **(_new(form, "value") or {})},
        "headers": [{"name": key.strip(), "value": {"data": value.strip()}} for key, _, value in headers],
    }
    if form.get("partition", "").isdigit():
        fields["partition"] = int(form["partition"])
    done = await page.ask("ProduceRecord", name=name, **fields)
    return go_to(
        f"topics/{quote(name, safe='')}/{done.partition}/{done.offset}",
        f"Record {done.offset} is durable in partition {done.partition}.",
    )


async def search(page: Asking) -> View:
    form = page.form
    fields: dict[str, Any] = {"filter": form.get("filter", "")}  # Any: fields of SearchTopic
    if form.get("key"):
        fields["key"] = form["key"]
    if form.get("partition", "").isdigit():
        fields["partition"] = int(form["partition"])
    operation = await page.ask("SearchTopic", name=page.names["name"], **fields)
    return go_to(f"operations/{operation.id}", "Every record of the topic is being looked at.")


async def trace(page: Asking) -> View:
    name, place = page.names["name"], _place(page)
    is_looked, problem = page.query.get("tables") == "on", ""
    asked = {"name": name, "partition": place[0], "offset": place[1]}
    try:
        found = await page.ask("TraceRecord", tables=is_looked, **asked)
    except (Conflict, Rejected) as error:
        if not is_looked:
            raise
        # What is known without the tables is worth showing.
        problem, found = str(error), await page.ask("TraceRecord", **asked)
    topic = await page.ask("DescribeTopic", name=name)
    return View(
        "trace.html",
        title=f"{name} {place[0]}/{place[1]}",
        topic=topic,
        trace=found,
        tab="records",
        problem=problem,
        is_looked=is_looked,
    )


def _place(page: Asking) -> tuple[int, int]:
    place = [page.names["partition"], page.names["offset"]]
    if not all(text.isascii() and text.isdigit() and len(text) < 19 for text in place):
        raise NotFound("There is no such page.")
    return int(place[0]), int(place[1])


def _new(form: dict[str, str], name: str) -> dict[str, str] | None:
    text = form.get(name, "")
    if not text:
        return None
    return {"data": text.replace("\r\n", "\n"), "encoding": form.get(f"{name}_encoding", "text")}


def raw(payload: Payload | None) -> bytes:
    if payload is None:
        return b""
    return payload.data.encode() if payload.encoding == "text" else base64.b64decode(payload.data)


def preview(payload: Payload | None) -> str:
    """One line for a table."""
    if payload is None:
        return ""
    if payload.encoding == "text":
        return " ".join(payload.data[:400].split())
    return raw(payload)[:64].hex(" ")


def brief(decoded: DecodedValue) -> str:
    """The same for a value that was read by a schema."""
    return decoded.json[:400]


def pretty(payload: Payload | None) -> str | None:
    """JSON with line breaks, its numbers as they were written; None for what is no JSON."""
    if payload is None or payload.encoding != "text" or payload.data[:1] not in ("{", "["):
        return None
    try:
        msgspec.json.decode(payload.data.encode(), type=msgspec.Raw)
        return indented(payload.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def indented(text: str) -> str:
    return msgspec.json.format(text.encode(), indent=2).decode()


def hex_dump(payload: Payload | None) -> str:
    """Offsets, bytes and what is printable of them."""
    data = raw(payload)[:_HEX_SHOWN]
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        lines.append(f"{start:06x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {shown}")
    return "\n".join(lines)
