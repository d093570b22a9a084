"""WALs that are read by somebody else than their owner, as the metastore has them.

The key of a takeover says who may do it. Everything that comes of it is written in transactions that compare this key, so that one who
was replaced in the middle writes nothing more.
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, KeyValue, Metastore, Put, read_all, unchanged
from headrace.control.plans import Fence
from headrace.errors import OutcomeUnknown, RevisionCompacted


class Known(msgspec.Struct, frozen=True):
    """A takeover as of a revision."""

    owner: str
    value: pb.Takeover
    revision: int

    def guard(self) -> Compare:
        return unchanged(keys.takeover(self.owner), self.revision)


class Takeovers:
    def __init__(self, store: Metastore) -> None:
        self._store = store
        self.known: dict[str, Known] = {}
        """By owner."""
        self._revision = 0

    async def load(self) -> None:
        found = await read_all(self._store, keys.TAKEOVERS)
        self.known.clear()
        for item in found.items:
            self.learn(item)
        self._revision = found.revision

    async def follow(self, tell: Callable[[], None] = lambda: None) -> None:
        """Until the store closes. `load` it first."""
        while True:
            try:
                async for changes in self._store.watch(keys.TAKEOVERS, from_revision=self._revision + 1):
                    for event in changes.events:
                        self.learn(
                            KeyValue(event.key, event.value or b"", 0, event.revision, 0), is_gone=event.value is None
                        )
                    self._revision = changes.revision
                    if changes.events:
                        tell()
                return
            except RevisionCompacted:
                await self.load()
                tell()

    def learn(self, item: KeyValue, *, is_gone: bool = False) -> None:
        key = keys.parse(item.key)
        if not isinstance(key, keys.TakeoverKey):
            return
        known = self.known.get(key.owner)
        if known is not None and known.revision >= item.mod_revision:
            return
        if is_gone:
            self.known.pop(key.owner, None)
        else:
            self.known[key.owner] = Known(key.owner, values.decode(pb.Takeover, item.value), item.mod_revision)

    async def read(self, owner: str) -> Known | None:
        """As it is now."""
        item = await self._store.get(keys.takeover(owner))
        if item is not None:
            self.learn(item)
        return self.known.get(owner) if item is not None else None

    async def change(self, known: Known, changed: pb.Takeover, *, fence: Fence) -> None:
        """Write what the taker has found out, if it still is the taker. What came of it is read, not guessed."""
        path = keys.takeover(known.owner)
        with suppress(OutcomeUnknown):
            await self._store.txn((fence.compare(), known.guard()), (Put(path, values.encode(changed)),))
        await self.read(known.owner)
