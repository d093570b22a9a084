"""Looks round the node every few seconds and keeps its board of problems true: what `/health` tells an operator.

Parts that notice something wrong by themselves put it up themselves. Here is what shows only to somebody who looks at several
of them, or comes back after a while: uploads that do not get on, producers that wait for long, a metastore that is held, and
what the last recovery could not read back.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from headrace.clock import Clock
from headrace.control.metastore import Metastore
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.log.wal.recovery import Quarantine
from headrace.telemetry.problems import Problems
from headrace.tier.plans import HOLD
from headrace.tier.service import Tier

LOOK_EVERY_S: Final = 5.0
STUCK_MS: Final = 60_000
"""An upload that is this late, beyond three of its intervals, is not merely slow."""
_PER_TURN: Final = 512
"""Partitions looked at before others get the loop."""
_NAMED_MAX: Final = 3
_HOLDS: Final = {
    b"restored": "the metastore was restored from the bucket",
    b"damaged": "a part of the metastore was damaged and dropped",
}


class Lookout:
    def __init__(
        self,
        problems: Problems,
        *,
        logs: LogStore,
        tier: Tier,
        store: Metastore,
        clock: Clock,
        upload_interval_ms: int,
        is_store_down: Callable[[], bool],
    ) -> None:
        self._problems = problems
        self._logs = logs
        self._tier = tier
        self._store = store
        self._clock = clock
        self._late_ms = STUCK_MS + 3 * upload_interval_ms
        self._is_store_down = is_store_down
        self._were_paused = False
        self._waiting: dict[PartitionLog, tuple[int, int]] = {}
        """Partitions with something to upload: how far they were uploaded, and since when that is so."""

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def note_recovery(self) -> None:
        """Once, after the log has recovered and before anything is appended: what it had and could not read back."""
        self._show("quarantine", _quarantined(self._logs.recovery.quarantined))
        self._show("missing records", _missing(self._logs.partitions()))

    async def look(self) -> None:
        self._show("hold", await self._hold())
        self._show(
            "store down", "the object store is down: records stay on this disk" if self._is_store_down() else None
        )
        damage = self._tier.ledger.damage
        self._show(
            "manifests",
            damage and f"the bucket's inventory is damaged, readers without a broker stop there: {damage}",
        )
        self._show("uploads", await self._stuck_uploads())
        are_paused = self._logs.has_paused_producers
        self._show(
            "producers",
            "producers are paused: the WAL is full of records that are not uploaded"
            if are_paused and self._were_paused
            else None,
        )
        self._were_paused = are_paused
        self._tier.forget_mended()

    async def _hold(self) -> str | None:
        held = await self._store.get(HOLD)
        if held is None:
            return None
        why = _HOLDS.get(held.value, "the metastore is held")
        return f"{why}: nothing is collected until `headrace tier verify` has passed, with this node stopped"

    async def _stuck_uploads(self) -> str | None:
        """By what is seen to move: the times of records are their producers', and may be of any year."""
        now_ms = self._clock.monotonic_ms()
        waiting: dict[PartitionLog, tuple[int, int]] = {}
        for number, partition in enumerate(list(self._logs.partitions()), 1):
            if partition.unuploaded_bytes:
                uploaded_end, since_ms = self._waiting.get(partition, (-1, now_ms))
                is_moving = uploaded_end != partition.uploaded_end
                waiting[partition] = partition.uploaded_end, now_ms if is_moving else since_ms
            if not number % _PER_TURN:
                await asyncio.sleep(0)
        self._waiting = waiting
        stuck = [(since_ms, each) for each, (_, since_ms) in waiting.items() if now_ms - since_ms > self._late_ms]
        if not stuck:
            return None
        since_ms, oldest = min(stuck, key=lambda each: each[0])
        return (
            f"uploads of {len(stuck)} partitions do not get on: {oldest.topic_name}-{oldest.index} waits at offset "
            f"{oldest.uploaded_end} for {(now_ms - since_ms) // 1000} s"
        )

    def _show(self, key: str, sentence: str | None) -> None:
        if sentence:
            self._problems.raise_problem(key, sentence)
        else:
            self._problems.clear(key)


def _quarantined(found: list[Quarantine]) -> str | None:
    if not found:
        return None
    ranges = ", ".join(f"LSN {each.start_lsn} to {each.end_lsn} ({each.reason})" for each in found[:_NAMED_MAX])
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return (
        f"the disk has damaged {len(found)} ranges of the WAL that were durable; their records are lost: {ranges}{more}"
    )


def _missing(partitions: Iterable[PartitionLog]) -> str | None:
    """Between what object storage has and what this disk has, there should be nothing."""
    found = [
        f"{each.topic_name}-{each.index} {each.uploaded_end} to {each.local_start - 1}"
        for each in partitions
        if each.local_start > each.uploaded_end
    ]
    if not found:
        return None
    named = ", ".join(found[:_NAMED_MAX]) + (f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else "")
    return f"offsets that were neither uploaded nor are on this disk any more, a spill file or a part of the WAL is missing: {named}"
