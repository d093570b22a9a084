"""Keeps what is noted for the audit in its topic, a batch at a time.

An event is durable within a moment of what it tells of, not before: a log that has no room must not keep anybody from taking a
right away. What cannot be written is counted, said in the next event, and in the node's own log.
"""

import asyncio
from typing import Final

import structlog

from headrace.broker.access.audit import AUDIT_TOPIC, Audit
from headrace.broker.produce import Produce
from headrace.broker.topics import Topics
from headrace.errors import HeadraceError, NotReady
from headrace.records.record import NewRecord

_PAUSE_S: Final = 0.05
"""Events of so long share a batch."""

log = structlog.get_logger(__name__)


class AuditTopic:
    def __init__(self, audit: Audit, topics: Topics, produce: Produce) -> None:
        self._audit = audit
        self._topics = topics
        self._produce = produce
        self._noted = asyncio.Event()
        audit.on_noted = self._noted.set
        self._noted.set()  # Something may have been noted before anybody listened.

    async def keep_forever(self) -> None:
        while True:
            await self._noted.wait()
            await asyncio.sleep(_PAUSE_S)
            await self.keep()

    async def keep(self) -> None:
        """Write what has been noted so far."""
        self._noted.clear()
        events = self._audit.take()
        if not events:
            return
        try:
            topic = await self._topics.ensure_internal(AUDIT_TOPIC, partitions=1)
            partition = topic.partitions[0]
            if partition.removed:
                raise NotReady(f"{AUDIT_TOPIC} is led by another broker")
            await self._produce.append_internal(partition, [NewRecord(value=event) for event in events])
        except HeadraceError as error:
            self._audit.lost(len(events))
            log.error("audit events lost", count=len(events), reason=str(error))
