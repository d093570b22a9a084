"""An object store that misbehaves by a script: any status on any call, late success, lost replies, wrong bodies, silence.

A script is a list of phases. Each names the share of requests that go wrong, which requests, and how; one integer seeds the
dice, so a run can be repeated. Outside every phase the store is healthy. What a status means is taken from the table that
the real stores are translated by.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.blob.answers import Request, meaning_of
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.store import Buffer, ObjectInfo
from headrace.clock import Clock
from headrace.errors import AlreadyExists, StoreUnavailable

STATUSES: Final = (
    301,
    304,
    307,
    400,
    401,
    403,
    404,
    405,
    408,
    409,
    410,
    411,
    412,
    413,
    416,
    429,
    500,
    501,
    502,
    503,
    504,
    507,
)
LOST, LATE, SILENT, TORN = "lost reply", "late success", "silence", "torn"
SHORT, LONG, FLIPPED = "short body", "long body", "flipped body"
WRITES: Final = (Request.CREATE, Request.PUT, Request.DELETE)
READS: Final = (Request.GET,)
LATE_S: Final = 30.0

Answer = int | str


@dataclass(frozen=True)
class Phase:
    """From `start_s` to `end_s` after the store was made, `share` of `requests` get one of `answers`."""

    start_s: float
    end_s: float
    share: float
    answers: tuple[Answer, ...]
    requests: tuple[Request, ...] = tuple(Request)
    prefix: str = ""
    """Only keys below it."""


@dataclass
class Counts:
    requests: int = 0
    wrong: dict[Answer, int] = field(default_factory=dict)


class MisbehavingStore(MemoryBlobStore):
    def __init__(self, clock: Clock, seed: int, script: Sequence[Phase] = ()) -> None:
        super().__init__(clock)
        self._dice = random.Random(seed)
        self._began_ms = clock.monotonic_ms()
        self.script = list(script)
        self.counts = Counts()
        self.deleted: list[str] = []
        self._late: list[asyncio.Future[None]] = []

    @property
    def age_s(self) -> float:
        return (self._clock.monotonic_ms() - self._began_ms) / 1000

    async def put(self, key: str, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        wrong = await self._answered(Request.PUT, key, data)
        await super().put(key, [data])
        _lose_reply(wrong)

    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        wrong = await self._answered(Request.CREATE, key, data)
        if key in self._objects:
            raise AlreadyExists(key)
        await super().put(key, [data])
        _lose_reply(wrong)

    async def get(self, key: str) -> Buffer:
        wrong = await self._answered(Request.GET, key)
        return self._spoiled(bytes(await super().get(key)), wrong)

    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        wrong = await self._answered(Request.GET, key)
        data = self._spoiled(bytes(await super().get_range(key, position, length)), wrong)
        if len(data) != length:
            raise StoreUnavailable(f"{key}: got {len(data)} of {length} bytes at {position}")
        return data

    async def head(self, key: str) -> ObjectInfo:
        await self._answered(Request.HEAD, key)
        return await super().head(key)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        await self._answered(Request.LIST, prefix)
        async for info in super().list(prefix, after=after):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        wrong = await self._answered(Request.DELETE, keys[0])
        self.deleted += [key for key in keys if key in self._objects]
        await super().delete(keys)
        _lose_reply(wrong)

    # -- misbehaving ---------------------------------------------------------------------------------------------

    async def _answered(self, request: Request, key: str, data: bytes | None = None) -> Answer | None:
        """Raises what the script wants; gives what is to happen to the body, or to the reply."""
        await asyncio.sleep(self._dice.random() * 0.02)
        self.counts.requests += 1
        wrong = self._drawn(request, key)
        if wrong is None:
            return None
        self.counts.wrong[wrong] = self.counts.wrong.get(wrong, 0) + 1
        if isinstance(wrong, int):
            raise meaning_of(request, wrong)(f"{key}: {wrong}")
        if wrong == SILENT:
            await asyncio.Event().wait()
        if wrong in (LATE, TORN) and data is not None:
            self._late.append(asyncio.ensure_future(self._arrive(key, data if wrong == LATE else data[:-7])))
            raise StoreUnavailable(f"{key}: {wrong}")
        return wrong

    def _drawn(self, request: Request, key: str) -> Answer | None:
        for phase in self.script:
            is_due = phase.start_s <= self.age_s < phase.end_s and request in phase.requests
            if is_due and key.startswith(phase.prefix) and self._dice.random() < phase.share:
                return self._dice.choice(phase.answers)
        return None

    async def _arrive(self, key: str, data: bytes) -> None:
        """A PUT that nobody waits for any more. Create-only, as all of ours are but for broker states."""
        await asyncio.sleep(LATE_S)
        if key not in self._objects:
            await super().put(key, [data])

    async def close(self) -> None:
        for late in self._late:
            late.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    def _spoiled(self, data: bytes, wrong: Answer | None) -> bytes:
        if wrong == SHORT:
            return data[: self._dice.randrange(len(data))] if data else data
        if wrong == LONG:
            return data + self._dice.randbytes(1 + self._dice.randrange(9))
        if wrong == FLIPPED and data:
            spoiled = bytearray(data)
            spoiled[self._dice.randrange(len(data))] ^= 1 << self._dice.randrange(8)
            return bytes(spoiled)
        return data


def _lose_reply(wrong: Answer | None) -> None:
    if wrong == LOST:
        raise StoreUnavailable("the reply was lost")
