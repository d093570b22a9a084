"""What a broker does before it stops: bring to object storage what only its disk has, since that disk may not come back.

Nobody appends any more. The tier's own tasks still run: they upload what producers of `object` topics wait for and write
manifests. An outage is waited out, for as long as the caller allows: records that stay behind are lost with a pod's disk.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.errors import StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.telemetry.logging import get_logger
from headrace.tier.ledger import Ledger
from headrace.tier.uploader import Uploader

_LOOK_AGAIN_S: Final = 0.05
_NAMED_MAX: Final = 20
"""Partitions that a log line names; the rest are counted."""

log = get_logger(__name__)


class Leaving:
    def __init__(
        self, *, uploader: Uploader, ledger: Ledger, logs: LogStore, is_store_down: Callable[[], bool], allowed_ms: int
    ) -> None:
        self._uploader = uploader
        self._ledger = ledger
        self._logs = logs
        self._is_store_down = is_store_down
        self._allowed_ms = allowed_ms
        self._bytes_before = 0
        self._is_outage_told = False

    async def upload_tail(self) -> None:
        """Returns when object storage has everything, and the manifests that say so. Bound it from outside."""
        await self._logs.wal.drain()
        self._bytes_before = sum(each.unuploaded_bytes for each in self._exposed())
        while self._is_anything_left():
            await self._bring()
            if self._is_anything_left():
                # The store refused some, or is down, or another task or broker has them under way: they need their turn.
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _is_anything_left(self) -> bool:
        return bool(self._exposed()) or self._ledger.is_behind

    async def _bring(self) -> None:
        """One round."""
        try:
            if self._is_store_down() or not await self._uploader.upload_round():
                raise StoreUnavailable("the object store is down, or refuses some records")
            await self._ledger.write_pending()
        except StoreUnavailable as error:
            self._tell_outage(error)

    def report(self) -> None:
        """Say what became of the tail."""
        exposed = self._exposed()
        bytes_left = sum(each.unuploaded_bytes for each in exposed)
        if exposed:
            log.warning(
                "this node stops with records that only its disk has; the next start on that disk uploads them",
                bytes=bytes_left,
                partition_count=len(exposed),
                partitions=[f"{each.topic_name}-{each.index}" for each in exposed[:_NAMED_MAX]],
            )
        elif self._bytes_before:
            log.info("object storage has everything", uploaded_bytes=self._bytes_before)

    def _exposed(self) -> list[PartitionLog]:
        return [each for each in self._logs.partitions() if each.unuploaded_bytes]

    def _tell_outage(self, error: StoreUnavailable) -> None:
        if not self._is_outage_told:
            self._is_outage_told = True
            log.warning(
                "this stop waits for the object store, to upload what only this disk has; signal again to stop now",
                reason=str(error),
                waits_ms_max=self._allowed_ms,
            )
