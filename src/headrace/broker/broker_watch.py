"""Whether the other brokers answer: each is looked at every 15 s, and is offline when it has not answered for 30 s.

For people. Who may lead is decided by controllers, within seconds, and not here: this says what this broker can reach.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from headrace.broker.identity import Identity, serves
from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Metastore, read_all
from headrace.errors import Unavailable
from headrace.telemetry.logging import get_logger

LOOK_S: Final = 15.0
SILENT_MS_MAX: Final = 30_000
_ANSWER_S: Final = 5.0
_AT_ONCE: Final = 16

log = get_logger(__name__)


class ControllerSeen(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    endpoint: str
    is_active: bool


class BrokerWatch:
    def __init__(
        self,
        identity: Identity,
        clock: Clock,
        *,
        probe: Callable[[pb.BrokerRegistration], Awaitable[bool]],
        read_controllers: Callable[[], Awaitable[Sequence[ControllerSeen]]],
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._probe = probe
        self._read_controllers = read_controllers
        self._answered_ms: dict[str, int] = {}
        """When each broker answered last; from the first look on, if it never did."""
        self.controllers: Sequence[ControllerSeen] = ()
        """As of the last look; none when nobody could say."""

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        others = {
            name: each for name, each in self._identity.registered().items() if name != self._identity.broker_name
        }
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def asked(registration: pb.BrokerRegistration) -> bool:
            async with at_once:
                return await self._probe(registration)

        found = await asyncio.gather(*map(asked, others.values()))
        now_ms = self._clock.monotonic_ms()
        self._answered_ms = {
            name: now_ms if is_there else self._answered_ms.get(name, now_ms)
            for name, is_there in zip(others, found, strict=True)
        }
        try:
            self.controllers = await self._read_controllers()
        except Unavailable as error:
            log.info("controllers are not known", reason=str(error))
            self.controllers = ()

    def is_online(self, name: str) -> bool:
        """What controllers have fenced is offline at once; what they have not, when it is silent for too long."""
        if name == self._identity.broker_name:
            return True
        registration = self._identity.registered().get(name)
        if registration is None or not serves(registration):
            return False
        now_ms = self._clock.monotonic_ms()
        return now_ms - self._answered_ms.get(name, now_ms) < SILENT_MS_MAX


async def read_controllers(store: Metastore) -> list[ControllerSeen]:
    active = await store.get(keys.ACTIVE_CONTROLLER)
    holder = "" if active is None else values.decode(pb.ActiveController, active.value).controller_id
    seen = []
    for item in (await read_all(store, keys.CONTROLLERS)).items:
        key = keys.parse(item.key)
        if isinstance(key, keys.ControllerKey):
            endpoint = values.decode(pb.ControllerRegistration, item.value).endpoint
            seen.append(ControllerSeen(id=key.controller_id, endpoint=endpoint, is_active=key.controller_id == holder))
    return seen


async def answers(registration: pb.BrokerRegistration) -> bool:
    """Whether somebody takes connections where the broker said that it listens."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            _, writer = await asyncio.open_connection(registration.host, registration.port_kafka)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
