"""What Wasm modules log, kept in a topic for `headrace wasm logs`: bounded, and never in the way of records.

Lines wait in a bounded queue and share batches. What the topic does not take, or there is no room for, is counted and gone.
"""

import asyncio
from collections import deque
from typing import Final

import msgspec
import structlog

from headrace.broker.ownership import MODULE_LOG_TOPIC
from headrace.broker.produce import Produce
from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.errors import HeadraceError, NotReady
from headrace.records.record import NewRecord
from headrace.transforms.service import Transforms

PARTITIONS: Final = 4
"""Spread over brokers: each writes to one that it leads."""
_LINES_MAX: Final = 10_000
_BATCH_MAX: Final = 1000
_PAUSE_S: Final = 0.2

log = structlog.get_logger(__name__)


class LoggedLine(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int
    module: str
    topic: str
    partition: int
    line: str


class ModuleLogs:
    def __init__(self, transforms: Transforms, topics: Topics, produce: Produce, clock: Clock) -> None:
        self._metrics = transforms.metrics
        self._topics = topics
        self._produce = produce
        self._clock = clock
        self._lines: deque[LoggedLine] = deque()
        self._noted = asyncio.Event()
        transforms.on_lines = self.note

    def note(self, module: str, topic: str, partition: int, lines: list[str]) -> None:
        at_ms = self._clock.now_ms()
        for line in lines:
            if len(self._lines) >= _LINES_MAX:
                self._metrics.wasm_lines_lost_total += 1
            else:
                self._lines.append(LoggedLine(at_ms=at_ms, module=module, topic=topic, partition=partition, line=line))
        self._noted.set()

    async def keep_forever(self) -> None:
        while True:
            await self._noted.wait()
            await asyncio.sleep(_PAUSE_S)
            self._noted.clear()
            while self._lines:
                await self.keep()

    async def keep(self) -> None:
        """Write some of what has been noted."""
        lines = [self._lines.popleft() for _ in range(min(len(self._lines), _BATCH_MAX))]
        if not lines:
            return
        encode = msgspec.json.Encoder().encode
        try:
            topic = await self._topics.ensure_internal(MODULE_LOG_TOPIC, partitions=PARTITIONS)
            led = [each for each in topic.partitions if not each.removed]
            if not led:
                raise NotReady(f"no partition of {MODULE_LOG_TOPIC} is led here")
            records = [NewRecord(key=each.module.encode(), value=encode(each)) for each in lines]
            await self._produce.append_internal(led[0], records)
        except HeadraceError as error:
            self._metrics.wasm_lines_lost_total += len(lines)
            log.warning("lines of modules lost", count=len(lines), reason=str(error))
