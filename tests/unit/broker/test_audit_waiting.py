"""Events of the audit are durable before whoever caused them is answered, for a bounded time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.support.metastores import ManualClock

from headrace.broker import audit_topic
from headrace.broker.access.audit import Audit
from headrace.broker.audit_topic import AuditTopic
from headrace.errors import StorageFull


class Log:
    """As much of topics and forwarding as events go through."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.is_asked = asyncio.Event()
        self.room = asyncio.Event()
        self.is_full = False
        self.room.set()

    async def ensure_internal(self, name: str, *, partitions: int) -> None:
        pass

    async def keep_events(self, topic: str, events: list[bytes]) -> None:
        self.is_asked.set()
        await self.room.wait()
        if self.is_full:
            raise StorageFull("no room")
        self.kept += events


class Kept:
    def __init__(self) -> None:
        self.audit = Audit(ManualClock(), "test")
        self.log = Log()
        self.topic = AuditTopic(self.audit, cast(Any, self.log), cast(Any, self.log))  # Any: a fake's type

    async def change(self, number: int) -> None:
        self.audit.changed(None, "", {"change": str(number)})
        await self.audit.settled()


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    made = Kept()
    running = asyncio.create_task(made.topic.keep_forever())
    yield made
    running.cancel()


async def test_a_change_goes_on_when_its_event_is_kept(kept: Kept) -> None:
    for number in range(3):
        await kept.change(number)
        assert len(kept.log.kept) == number + 1
    await asyncio.gather(*(kept.change(number) for number in range(50)))
    assert len(kept.log.kept) == 53


async def test_a_change_that_comes_while_others_are_written_waits_for_its_own(kept: Kept) -> None:
    kept.log.room.clear()
    first = asyncio.create_task(kept.change(1))
    await kept.log.is_asked.wait()
    # What is scheduled first runs first: the second change is noted before the log goes on.
    second = asyncio.create_task(kept.change(2))
    kept.log.room.set()
    await first
    await second
    assert len(kept.log.kept) == 2


async def test_a_log_that_is_full_or_silent_keeps_nobody_from_a_change(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.log.is_full = True
    await kept.change(1)
    assert kept.audit.skipped_total == 1
    monkeypatch.setattr(audit_topic, "WAIT_S_MAX", 0.01)
    kept.log.room.clear()
    await kept.change(2)
    assert kept.log.kept == []


async def test_without_anybody_who_keeps_events_nobody_waits() -> None:
    audit = Audit(ManualClock(), "test")
    audit.changed(None, "", {})
    await audit.settled()
