"""Who was refused what, and who changed what: events on their way to the topic `__headrace_audit`.

- Noting never waits and never fails: what happens to an event afterwards is `audit_topic`'s business.
- Bounded twice: so many events a second of what clients do, so many in memory. What is left out is counted, and the next event
  says how many. Changes of access itself are left out only when memory is full.
- No event has a password, a verifier or a token in it: callers give names.
"""

import datetime
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from headrace.broker.access.words import Operation, Principal, Resource
from headrace.clock import Clock

AUDIT_TOPIC: Final = "__headrace_audit"
PENDING_MAX: Final = 10_000
EVENTS_PER_SECOND: Final = 100
BURST_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 300
"""Names come from the network; topics, groups and users have at most 255 characters."""
TEXT_MAX: Final = 300
ITEMS_MAX: Final = 100
"""Of what was before and after a change: events are small."""
CHANGING: Final = frozenset({Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS})
"""Whoever is allowed one of these is noted; reading and writing is not."""


class Audit:
    def __init__(self, clock: Clock, source: str) -> None:
        self._clock = clock
        self._source = source
        self._pending: list[bytes] = []
        self._number = 0
        self._skipped = 0
        self._room = float(BURST_MAX)
        self._looked_ms = clock.monotonic_ms()
        self.skipped_total = 0
        self.on_noted: Callable[[], None] | None = None
        """Told when there is something to `take`."""
        self.keep: Callable[[], Awaitable[None]] | None = None
        """Waits until what was noted so far is kept, or given up; None where nobody keeps it."""

    def decided(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str, *, is_allowed: bool
    ) -> None:
        """Somebody has asked to do something: they may, or may not."""
        if is_allowed and operation not in CHANGING:
            return
        if not self._has_room():
            self._skip(1)
            return
        kind = "headrace.access.allowed" if is_allowed else "headrace.access.denied"
        what = {"operation": operation.name, "resource": resource.name, "name": name[:NAME_LENGTH_MAX]}
        self._note(kind, principal, host, what)

    def login_refused(self, host: str, listener: str) -> None:
        """Not as whom: people type passwords where their name belongs."""
        if self._has_room():
            self._note("headrace.login.refused", None, host, {"listener": listener})
        else:
            self._skip(1)

    # Any: whatever JSON has
    def changed(self, principal: Principal | None, host: str, what: Mapping[str, Any]) -> None:
        """Somebody has changed rules, users or quotas; nobody is the node itself."""
        self._note("headrace.access.changed", principal, host, what)

    # Any: whatever JSON has
    def administered(self, principal: Principal, host: str, what: Mapping[str, Any]) -> None:
        """Somebody has changed something else: what was before and after is among it."""
        self._note("headrace.admin.changed", principal, host, shortened(what))

    async def settled(self) -> None:
        """Whoever has made a change is answered after this: what tells of it is durable, unless the log has no room for it. That
        keeps nobody from taking a right away, and is said in the node's own log."""
        if self.keep is not None:
            await self.keep()

    def take(self) -> list[bytes]:
        """Everything since the last time, each as JSON (CloudEvents 1.0)."""
        taken, self._pending = self._pending, []
        return taken

    def put_back(self, events: list[bytes]) -> None:
        """Those that were taken and could not be kept yet, as far as there is room."""
        room = max(PENDING_MAX - len(self._pending), 0)
        self._pending = events[:room] + self._pending
        if len(events) > room:
            self._skip(len(events) - room)

    def lost(self, count: int) -> None:
        """So many that were taken could not be kept."""
        self._skip(count)

    def _skip(self, count: int) -> None:
        self._skipped += count
        self.skipped_total += count

    def _has_room(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        passed_s = (now_ms - self._looked_ms) / 1000
        self._room = min(self._room + passed_s * EVENTS_PER_SECOND, BURST_MAX)
        self._looked_ms = now_ms
        if self._room < 1:
            return False
        self._room -= 1
        return True

    # Any: whatever JSON has
    def _note(self, kind: str, principal: Principal | None, host: str, what: Mapping[str, Any]) -> None:
        if len(self._pending) >= PENDING_MAX:
            self._skip(1)
            return
        now_ms = self._clock.now_ms()
        at = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
        data = {"principal": None if principal is None else str(principal), "host": host, **what}
        if self._skipped:
            data["skipped"] = self._skipped
            self._skipped = 0
        self._number += 1
        event = {
            "specversion": "1.0",
            "id": f"{now_ms}-{self._number}",
            "source": self._source,
            "type": kind,
            "time": at.replace("+00:00", "Z"),
            "data": data,
        }
        self._pending.append(msgspec.json.encode(event))
        if self.on_noted is not None:
            self.on_noted()


def shortened(value: Any) -> Any:  # Any: JSON
    """Events are small: texts are cut, and long lists end with how many more there were."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else f"{value[:TEXT_MAX]}… ({len(value)} characters)"
    if isinstance(value, Mapping):
        kept = {str(key): shortened(each) for key, each in list(value.items())[:ITEMS_MAX]}
        return kept if len(value) <= ITEMS_MAX else {**kept, "…": len(value) - ITEMS_MAX}
    if isinstance(value, list | tuple):
        rows = [shortened(each) for each in value[:ITEMS_MAX]]
        return rows if len(value) <= ITEMS_MAX else [*rows, f"… and {len(value) - ITEMS_MAX} more"]
    return value
