"""When uploads go, apart from what they carry."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.logs import turn_of_the_loop

from headrace.clock import SystemClock
from headrace.tier.settings import TierSettings
from headrace.tier.uploader import Take, Uploader

LONG_S = 3600.0
PATIENCE_S = 30.0


class Logs:
    """A log that has flushed so much, and has no partitions."""

    def __init__(self) -> None:
        self.wal = SimpleNamespace(flushed_bytes_total=0, room_bytes=1, data_size=1)
        self.has_paused_producers = False

    def partitions(self) -> list[Any]:
        return []


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def uploader(logs: Logs) -> Uploader:
    nobody: Any = cast(Any, SimpleNamespace())
    return Uploader(TierSettings(), carrier=nobody, commits=nobody, logs=cast(Any, logs), clock=SystemClock())


async def test_a_tick_ends_at_once_when_much_has_come_in(uploader: Uploader, logs: Logs) -> None:
    waiting = asyncio.create_task(uploader._tick(LONG_S))
    await turn_of_the_loop()
    assert not waiting.done()
    logs.wal.flushed_bytes_total = TierSettings().upload_waiting_bytes
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_tick_ends_at_once_when_somebody_wants_space(uploader: Uploader) -> None:
    waiting = asyncio.create_task(uploader._tick(LONG_S))
    await turn_of_the_loop()
    uploader.want_space()
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_store_that_is_down_is_not_asked_again_and_again(
    uploader: Uploader, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much has come in: nothing of it can go."""
    looks = 0

    async def wait_for_ever(event: asyncio.Event, *, within_s: float) -> bool:
        return await asyncio.Event().wait()

    monkeypatch.setattr("headrace.tier.uploader.woken", wait_for_ever)

    def is_down() -> bool:
        nonlocal looks
        looks += 1
        return True

    uploader._is_store_down = is_down
    logs.wal.flushed_bytes_total = 1 << 40
    running = asyncio.create_task(uploader._run_rounds())
    await turn_of_the_loop(50)
    running.cancel()
    assert looks == 1


async def test_rounds_for_full_objects_do_not_put_off_the_one_that_takes_everything(
    uploader: Uploader, logs: Logs
) -> None:
    logs.wal.flushed_bytes_total = TierSettings().upload_waiting_bytes
    uploader._next_round_ms = due_ms = SystemClock().monotonic_ms() + 3_600_000
    assert uploader._begin_round() is Take.FULL_OBJECTS
    assert uploader._begin_round() is Take.BUSY_PARTITIONS
    assert uploader._next_round_ms == due_ms
    logs.has_paused_producers = True
    assert uploader._begin_round() is Take.EVERYTHING
