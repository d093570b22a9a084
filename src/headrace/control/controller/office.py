"""The office of the active controller: one holds it at a time, under a lease.

A lease is no lock: one who was paused believes to hold it for a while longer. So every transaction of a controller carries
`guard`, a compare of the key that names the holder, and fails once another holds it. The lease only decides when that is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, KeyValue, Lease, Metastore, Put, unchanged
from headrace.errors import LeaseNotFound, NotReady, OutcomeUnknown, Unavailable
from headrace.telemetry.logging import get_logger

LEASE_MS: Final = 2_000
"""The least that etcd grants."""
LOOK_S: Final = 0.25
"""Between two looks at who holds the office, at each of which the lease is kept alive."""

REFUSALS: Final = 3
"""Looks in a row at which nobody listened where the active controller did: its process is gone, and its lease need not be waited for."""
RESPECT_MS: Final = 30_000
"""After one was taken for gone: where addresses lie, controllers must not depose each other all the time."""

log = get_logger(__name__)

IsRefused = Callable[[str], Awaitable[bool]]
"""Whether the machine at `host:port` says that nobody listens there."""


async def _never(endpoint: str) -> bool:
    return False


class Office:
    def __init__(
        self, store: Metastore, *, controller_id: str, endpoint: str, clock: Clock, is_refused: IsRefused = _never
    ) -> None:
        self._store = store
        self._is_refused = is_refused
        self._refusals = 0
        self._respected_until_ms = 0
        self._clock = clock
        self._controller_id = controller_id
        self.endpoint = endpoint
        """`host:port` that brokers are told; known for certain once its port is open."""
        self._lease: Lease | None = None
        self._until_ms = 0
        self._revision = 0
        """Of the key, while it names us."""
        self._is_first_look = True
        self.holder: pb.ActiveController | None = None
        """Who is active, as of the last look."""

    @property
    def is_held(self) -> bool:
        """Whether this controller is active, as far as it knows."""
        return self._revision > 0 and self._clock.monotonic_ms() < self._until_ms

    def guard(self) -> Compare:
        """Raises `NotReady` when this controller is not active."""
        if not self.is_held:
            raise NotReady("this controller is not active")
        return unchanged(keys.ACTIVE_CONTROLLER, self._revision)

    def lost(self) -> None:
        """A transaction has shown that somebody else holds it."""
        self._note(None)

    async def run(self) -> None:
        """Hold it, or wait for it, until cancelled."""
        is_away = False
        while True:
            try:
                await self.look()
                is_away = False
            except Unavailable as error:
                if not is_away:
                    log.warning("the metastore does not answer", reason=str(error))
                is_away = True
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Keep the lease alive, see who is active, and be it if nobody is."""
        try:
            await self._look()
        except LeaseNotFound as error:
            # It ran out between two calls: this process stood still, or the store did. The next look takes another.
            log.info("the lease of this controller ran out", reason=str(error))
            self._lease = None
            self._note(None)

    async def _look(self) -> None:
        lease = await self._renew()
        item = await self._store.get(keys.ACTIVE_CONTROLLER)
        # At the first look one that has our name is a former life of ours, whose lease need not be waited for.
        is_former = item is not None and self._is_first_look and self._names_us(item)
        if item is None or is_former or await self._is_gone(item):
            await self._take(item, lease)
            item = await self._store.get(keys.ACTIVE_CONTROLLER)
        self._is_first_look = False
        self._note(item)

    async def leave(self) -> None:
        """Let another have it at once."""
        lease, self._lease = self._lease, None
        self._note(None)
        if lease is not None:
            try:
                await self._store.revoke_lease(lease.id)
            except (Unavailable, LeaseNotFound) as error:
                log.info("the lease of this controller runs out by itself", reason=str(error))

    async def _renew(self) -> Lease:
        asked_ms = self._clock.monotonic_ms()
        if self._lease is not None:
            try:
                ttl_ms = await self._store.keep_alive(self._lease.id)
            except LeaseNotFound:
                self._lease = None
                self._note(None)
            else:
                self._until_ms = asked_ms + ttl_ms
                return self._lease
        lease = await self._store.grant_lease(LEASE_MS)
        mine = pb.ControllerRegistration(endpoint=self.endpoint, registered_ms=self._clock.now_ms())
        await self._store.txn((), (Put(keys.controller(self._controller_id), values.encode(mine), lease.id),))
        self._lease = lease
        self._until_ms = asked_ms + lease.ttl_ms
        return lease

    async def _take(self, former: KeyValue | None, lease: Lease) -> None:
        compare = unchanged(keys.ACTIVE_CONTROLLER, 0 if former is None else former.mod_revision)
        mine = pb.ActiveController(controller_id=self._controller_id, endpoint=self.endpoint)
        # Whatever comes of it: the key says who has it.
        with suppress(OutcomeUnknown):
            await self._store.txn((compare,), (Put(keys.ACTIVE_CONTROLLER, values.encode(mine), lease.id),))

    async def _is_gone(self, item: KeyValue) -> bool:
        """Whether the process that holds it is no more. Taking it from one that is alive is safe too: its transactions compare the key."""
        now_ms = self._clock.monotonic_ms()
        if (self._lease is not None and item.lease == self._lease.id) or now_ms < self._respected_until_ms:
            return False
        holder = values.decode(pb.ActiveController, item.value)
        self._refusals = self._refusals + 1 if await self._is_refused(holder.endpoint) else 0
        if self._refusals < REFUSALS:
            return False
        self._refusals, self._respected_until_ms = 0, now_ms + RESPECT_MS
        log.info("nobody listens where the active controller did", controller=holder.controller_id)
        return True

    def _names_us(self, item: KeyValue) -> bool:
        return values.decode(pb.ActiveController, item.value).controller_id == self._controller_id

    def _note(self, item: KeyValue | None) -> None:
        was_held = self._revision > 0
        is_ours = item is not None and self._lease is not None and item.lease == self._lease.id
        self._revision = item.mod_revision if item is not None and is_ours else 0
        self.holder = values.decode(pb.ActiveController, item.value) if item is not None else None
        if is_ours != was_held:
            log.info("this controller is active" if is_ours else "this controller is no longer active")
