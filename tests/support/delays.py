"""A node whose parts take their time: `python -m tests.support.delays SEED up ...`.

Every job of a thread, every call of the object store and of the metastore, and every step of those who move records takes
a random extra time: mostly none, often some milliseconds, now and then most of a second. Whatever is decided before such
a step and used after it meets a log that has moved on. Each place draws from a source of its own, so the seed replays the
same delays wherever threads meet in another order. Some writes to the object store are lost, or only their answers. The node
itself knows nothing of this.
"""

import asyncio
import functools
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from headrace.blob.local import LocalBlobStore
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.store import ObjectInfo
from headrace.cli.main import main as run
from headrace.control.embedded import EmbeddedMetastore
from headrace.errors import StoreUnavailable
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.log.wal.flusher import NativeFlusher, ThreadFlusher
from headrace.tier.carrier import Carrier
from headrace.tier.commits import Commits
from headrace.tier.compactor import Compactor
from headrace.tier.key_compactor import KeyCompactor
from headrace.tier.reader import TierReader
from headrace.tier.ring_keeper import RingKeeper
from headrace.tier.sweeper import Sweeper
from headrace.tier.uploader import Uploader

# A method of any class: whatever it takes, whatever it gives.
_Method = Callable[..., Any]

_SHORT_S: Final = (0.001, 0.05)
_LONG_S: Final = (0.3, 1.0)
_SLOW_PLACES: Final = 0.08
_LOST_SHARE: Final = 0.01
_SOUND_S: Final = 5.0
"""A node that starts for the first time cannot do without its store."""

STORES: Final[Sequence[tuple[type, Sequence[str]]]] = (
    (LocalBlobStore, ("put", "put_if_absent", "get", "get_range", "head", "delete")),
    (EmbeddedMetastore, ("txn", "get", "range")),
)
"""Others may be in any of these at the same time."""

STEPS: Final[Sequence[tuple[type, Sequence[str]]]] = (
    (PartitionLog, ("read_cold_pieces", "read_for_upload")),
    (LogStore, ("read_wal", "oldest_needed_lsn", "trim", "checkpoint")),
    (TierReader, ("_block_at", "_blocks")),
    (Carrier, ("gather", "_claim", "_commit")),
    (Commits, ("new_object", "name", "prepare", "commit", "keep_in_wal", "replace", "bury")),
    (Compactor, ("_read", "_take_apart", "replace", "_free_worst")),
    (KeyCompactor, ("_note", "_clean_segment")),
    (RingKeeper, ("_trim", "_spill")),
    (Sweeper, ("apply_retention", "drop_dead_segments", "bury_topics", "collect_objects", "_mark", "_delete")),
    (Uploader, ("_survey", "_announce")),
)
"""Each begins and ends at a point where its caller lets others run."""


class Delays:
    """How long each place is held up, from one seed.

    Some nodes are a little slow everywhere; others hardly anywhere, and get round more often; others again are very slow in
    a few places, so that everybody else is far ahead of those.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._often = random.Random(seed).choice((0.2, 0.5, 1.0, 0.0, 0.0))
        """Zero: in a few places only."""
        self._sources: dict[str, random.Random] = {}
        self._lock = threading.Lock()

    def chance(self, place: str) -> float:
        with self._lock:
            return self._source(place).random()

    def draw(self, place: str, *, share: float = 1.0) -> float:
        """Seconds. `share` makes delays rarer, for places that are passed all the time."""
        with self._lock:
            source = self._source(place)
            chance = source.random() / share
            short, long = self._shares(place)
            if chance < long:
                return source.uniform(*_LONG_S)
            return source.uniform(*_SHORT_S) if chance < long + short else 0.0

    def _source(self, place: str) -> random.Random:
        source = self._sources.get(place)
        if source is None:
            source = self._sources[place] = random.Random(f"{self._seed}-{place}")
        return source

    def _shares(self, place: str) -> tuple[float, float]:
        """How many delays are of milliseconds, and how many of most of a second."""
        if self._often:
            return 0.1 * self._often, 0.005 * self._often
        is_slow = random.Random(f"{self._seed}-{place}-slow").random() < _SLOW_PLACES
        return (0.4, 0.05) if is_slow else (0.0, 0.0)


def lose_writes(delays: Delays) -> None:
    """Now and then the object store does not do what it is asked to, or does it and says that it could not."""
    ready_at = time.monotonic() + _SOUND_S

    def losing(name: str) -> None:
        write = getattr(RetryingBlobStore, name)

        @functools.wraps(write)
        async def lost(*arguments: Any) -> None:
            is_lost = time.monotonic() > ready_at and delays.chance(f"lost {name}") < _LOST_SHARE
            if not is_lost or delays.chance(f"lost {name}") < 0.5:
                await write(*arguments)
            if is_lost:
                raise StoreUnavailable("the answer was lost")

        setattr(RetryingBlobStore, name, lost)

    for name in ("put", "put_if_absent", "delete"):
        losing(name)


def hold_up_threads(delays: Delays) -> None:
    """Jobs of every pool of threads begin late, and their results are late."""
    submit = ThreadPoolExecutor.submit

    def late(self: ThreadPoolExecutor, work: _Method, /, *arguments: Any, **named: Any) -> Future[Any]:
        place = f"thread {self._thread_name_prefix}"  # What its owner called it.

        def slow() -> Any:
            time.sleep(delays.draw(place, share=0.5))
            done = work(*arguments, **named)
            time.sleep(delays.draw(place, share=0.5))
            return done

        return submit(self, slow)

    ThreadPoolExecutor.submit = late  # type: ignore[method-assign, assignment]


def hold_up_flushes(delays: Delays) -> None:
    for kind in (NativeFlusher, ThreadFlusher):

        def late(self: Any, lsn: int, image: memoryview, write: _Method = kind.write) -> None:
            if pause := delays.draw("flush", share=0.2):
                self._loop.call_later(pause, write, self, lsn, image)
            else:
                write(self, lsn, image)

        kind.write = late  # type: ignore[method-assign]


def hold_up_calls(delays: Delays, owner: type, names: Sequence[str], *, share: float) -> None:
    for name in names:
        setattr(owner, name, _late(delays, f"{owner.__name__}.{name}", getattr(owner, name), share))


def _late(delays: Delays, place: str, method: _Method, share: float) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def late(*arguments: Any, **named: Any) -> Any:
        await _pause(delays.draw(place, share=share))
        done = await method(*arguments, **named)
        await _pause(delays.draw(place, share=share))
        return done

    return late


def hold_up_listings(delays: Delays) -> None:
    listed = LocalBlobStore.list

    async def late(self: LocalBlobStore, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        await _pause(delays.draw("LocalBlobStore.list"))
        async for info in listed(self, prefix, after=after):
            yield info
            await _pause(delays.draw("LocalBlobStore.list", share=0.02))

    LocalBlobStore.list = late  # type: ignore[method-assign]


def hold_up_turns(delays: Delays) -> None:
    """Whoever offers the loop to others gets it back late."""

    async def late(seconds: float, result: Any = None) -> Any:
        return await _sleep(seconds or delays.draw("turn", share=0.01), result)

    asyncio.sleep = late  # type: ignore[assignment]


_sleep: Final = asyncio.sleep


async def _pause(seconds: float) -> None:
    if seconds:
        await _sleep(seconds)


def hold_up_everything(delays: Delays) -> None:
    lose_writes(delays)
    hold_up_threads(delays)
    hold_up_flushes(delays)
    hold_up_listings(delays)
    hold_up_turns(delays)
    for owner, names in STORES:
        hold_up_calls(delays, owner, names, share=0.3)
    for owner, names in STEPS:
        hold_up_calls(delays, owner, names, share=0.3)


def main() -> None:
    hold_up_everything(Delays(int(sys.argv.pop(1))))
    run()


if __name__ == "__main__":
    main()
