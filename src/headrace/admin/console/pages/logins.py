"""How people and programs are logged in, and what was refused and changed: tokens, sessions, audit."""

from urllib.parse import quote

import msgspec

from headrace.admin.api.records import RecordView
from headrace.admin.console.pages import security
from headrace.admin.console.views import Asking, View, go_to
from headrace.broker.access.audit import AUDIT_TOPIC
from headrace.errors import Invalid, TopicNotFound


async def create_token(page: Asking) -> View:
    """No redirect: what is shown once cannot be kept for the page after this one."""
    days = page.form.get("days", "90").strip()
    if not (days.isascii() and days.isdigit() and len(days) < 6):
        raise Invalid("days: a whole number")
    name = page.names["user"]
    made = await page.ask("CreateToken", user=name, days=int(days), note=page.form.get("note", "").strip())
    return await security.user(page, made)


async def revoke_token(page: Asking) -> View:
    name = page.names["user"]
    done = await page.ask("RevokeToken", user=name, token=page.names["id"])
    return go_to(f"security/users/{quote(name, safe='')}", done.message)


async def sessions(page: Asking) -> View:
    return View(
        "sessions.html", title="Sessions", found=await page.ask("ListSessions", **page.paging()), tab="sessions"
    )


async def end_session(page: Asking) -> View:
    done = await page.ask("EndSession", session=page.names["session"])
    return go_to("security/sessions", done.message)


class AuditRow(msgspec.Struct, frozen=True):
    offset: int
    time_ms: int
    kind: str
    principal: str
    host: str
    detail: str


async def audit(page: Asking) -> View:
    """The newest events, or those before an offset."""
    before = page.number("before")
    try:
        found = await page.ask("ReadRecords", name=AUDIT_TOPIC, limit=100, **_place(before))
    except TopicNotFound:
        return View("audit.html", title="Audit", rows=[], is_kept=False, older=None, tab="audit")
    rows = [_audit_row(record) for record in found.records if before is None or record.offset < before]
    rows.sort(key=lambda row: -row.offset)
    start = found.partitions[0].log_start if found.partitions else 0
    older = rows[-1].offset if rows and rows[-1].offset > start else None
    return View("audit.html", title="Audit", rows=rows, is_kept=True, older=older, tab="audit")


def _place(before: int | None) -> dict[str, object]:
    return {} if before is None else {"start": "offset", "partition": 0, "offset": max(0, before - 100)}


def _audit_row(record: RecordView) -> AuditRow:
    text = "" if record.value is None else record.value.data
    try:
        event = msgspec.json.decode(text, type=_Event)
    except msgspec.DecodeError:
        return AuditRow(record.offset, record.timestamp_ms, "not understood", "", "", text)
    data = dict(event.data)
    principal, host = data.pop("principal", None), data.pop("host", "")
    detail = ", ".join(f"{name} {_shown(value)}" for name, value in data.items())
    kind = event.type.removeprefix("headrace.").replace(".", " ")
    return AuditRow(record.offset, record.timestamp_ms, kind, str(principal or ""), str(host), detail)


class _Event(msgspec.Struct):
    type: str
    data: dict[str, object]


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
