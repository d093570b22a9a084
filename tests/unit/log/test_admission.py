"""Producers pause while the disk is behind, and come back when it has caught up."""

from pathlib import Path

import pytest
from tests.support.logs import NOW_MS, batch_of, opened

from headrace.errors import Overloaded
from headrace.log import store as store_module


async def test_producers_paused_for_the_disk_resume_after_the_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_UNFLUSHED_BYTES_MAX", 1024)
    async with opened(tmp_path, wal_capacity_bytes=16 * 1024 * 1024) as log:
        assert log.store.can_take(1)
        woken: list[bool] = []
        log.partitions[0].append(batch_of(b"x" * 2048), now_ms=NOW_MS)
        assert not log.store.can_take(1)
        log.store.when_room(lambda: woken.append(log.store.can_take(1)))
        await log.store.wal.drain()
        assert woken == [True]
        assert not log.store.has_paused_producers


async def test_who_is_refused_and_does_not_wait_has_room_made(tmp_path: Path) -> None:
    """A coordinator does not pause: nobody else may be there who asks for room, and it would be refused until the next upload."""
    async with opened(tmp_path, wal_capacity_bytes=8 * 1024 * 1024) as log:
        asked: list[bool] = []
        log.store.space_wanted = lambda: asked.append(True)
        log.store.require_room(1024)
        assert not asked
        while log.store.can_take(200_000):
            log.partitions[0].append(batch_of(b"x" * 200_000), now_ms=NOW_MS)
            await log.store.wal.drain()
        with pytest.raises(Overloaded):
            log.store.require_room(200_000)
        assert asked
