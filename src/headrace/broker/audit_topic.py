"""Keeps what is noted for the audit in its topic, a batch at a time.

Whoever changes something is answered once the event about it is durable (`until_kept`), for a bounded time: a log that has no room
must not keep anybody from taking a right away. What cannot be written is counted, said in the next event, and in the node's own log.

In a cluster one broker leads the topic, and the others hand their events to it. While nobody does, events wait, as many as there is room
for. One whose leader was lost in the middle is sent again, and may be in the topic twice, with the same `source` and `id`.
"""

import asyncio
import contextlib
from typing import Final

import structlog

from headrace.broker.access.audit import AUDIT_TOPIC, Audit
from headrace.broker.forwarding import Forwarding
from headrace.broker.topics import Topics
from headrace.errors import AlreadyExists, HeadraceError, Overloaded, Unavailable

_PAUSE_S: Final = 0.05
"""Events of so long share a batch, unless somebody waits for one."""
_AGAIN_S: Final = 0.2
"""After which somebody is looked for again who leads the topic."""
WAIT_S_MAX: Final = 2.0
"""How long a change waits for its event."""

log = structlog.get_logger(__name__)


class AuditTopic:
    def __init__(self, audit: Audit, topics: Topics, forwarding: Forwarding) -> None:
        self._audit = audit
        self._topics = topics
        self._forwarding = forwarding
        self._noted = asyncio.Event()
        self._wanted = asyncio.Event()
        """Somebody waits."""
        self._round: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the round that begins next is over, and what had been noted before it is kept or lost."""
        audit.on_noted = self._noted.set
        audit.keep = self.until_kept
        self._noted.set()  # Something may have been noted before anybody listened.

    async def keep_forever(self) -> None:
        while True:
            await self._noted.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _PAUSE_S)
            self._wanted.clear()
            ending, self._round = self._round, asyncio.get_running_loop().create_future()
            try:
                await self._keep_patiently()
            finally:
                ending.set_result(None)

    async def _keep_patiently(self) -> None:
        is_kept = await self.keep()
        while not is_kept:
            await asyncio.sleep(_AGAIN_S)
            is_kept = await self.keep()

    async def until_kept(self) -> None:
        """Until what was noted before this is durable, or lost, or has taken too long."""
        self._noted.set()
        self._wanted.set()
        try:
            await asyncio.wait_for(asyncio.shield(self._round), WAIT_S_MAX)
        except TimeoutError:
            log.error("a change is answered before its audit event is durable", seconds=WAIT_S_MAX)

    async def keep(self) -> bool:
        """Write what has been noted so far; False where that has to wait."""
        self._noted.clear()
        events = self._audit.take()
        if not events:
            return True
        try:
            await self._topics.ensure_internal(AUDIT_TOPIC, partitions=1)
            await self._forwarding.keep_events(AUDIT_TOPIC, events)
        except HeadraceError as error:
            if _passes(error):
                self._audit.put_back(events)
                log.warning("audit events wait", count=len(events), reason=str(error))
                return False
            self._audit.lost(len(events))
            log.error("audit events lost", count=len(events), reason=str(error))
        return True


def _passes(error: HeadraceError) -> bool:
    """Nobody leads the topic just now or can be reached, or another broker was quicker to create it. A full log is another matter."""
    return isinstance(error, Unavailable | AlreadyExists) and not isinstance(error, Overloaded)
