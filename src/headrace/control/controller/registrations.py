"""The registrations of brokers, as far as a controller knows them.

News of one come from three sides: the reply to what this controller has written itself, a read, and the watch. They may come in any
order, and the one with the highest revision is true. Each that is newer than what was known is told on, once.
"""

from collections.abc import Callable

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.controller.machine import State
from headrace.control.metastore import Compare, KeyValue, Metastore, RangeResult, Read, only, read_all, unchanged
from headrace.errors import RevisionCompacted


class Registrations:
    def __init__(
        self,
        store: Metastore,
        *,
        on_change: Callable[[str, pb.BrokerRegistration], None],
        on_removed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._items: dict[str, KeyValue] = {}
        """Newest known, by the broker's name."""
        self._revision = 0
        """Up to which the watch was read."""
        self._on_change = on_change
        self._on_removed = on_removed

    def get(self, broker_id: str) -> pb.BrokerRegistration | None:
        item = self._items.get(broker_id)
        return None if item is None else values.decode(pb.BrokerRegistration, item.value)

    def all(self) -> dict[str, pb.BrokerRegistration]:
        return {name: values.decode(pb.BrokerRegistration, item.value) for name, item in self._items.items()}

    def state_of(self, broker_id: str, epoch: int) -> State:
        """STARTING where only another incarnation is known yet."""
        known = self.get(broker_id)
        return State(known.state) if known is not None and known.broker_epoch == epoch else State.STARTING

    def guard(self, broker_id: str) -> Compare:
        """That its registration is still what is known of it, or that there still is none."""
        item = self._items.get(broker_id)
        return unchanged(keys.broker(broker_id), 0 if item is None else item.mod_revision)

    def learn(self, item: KeyValue) -> None:
        key = keys.parse(item.key)
        if not isinstance(key, keys.BrokerKey):
            return
        known = self._items.get(key.broker_id)
        if known is None or item.mod_revision > known.mod_revision:
            self._items[key.broker_id] = item
            self._on_change(key.broker_id, values.decode(pb.BrokerRegistration, item.value))

    def forget(self, broker_id: str, revision: int) -> None:
        """There was none at this revision."""
        known = self._items.get(broker_id)
        if known is not None and known.mod_revision <= revision:
            del self._items[broker_id]
            self._on_removed(broker_id)

    async def read(self, broker_id: str) -> KeyValue | None:
        """As it is now."""
        result = await self._store.txn((), (Read(only(keys.broker(broker_id))),))
        (found,) = result.results
        assert isinstance(found, RangeResult)
        for item in found.items:
            self.learn(item)
            return item
        self.forget(broker_id, result.revision)
        return None

    async def load(self) -> None:
        found = await read_all(self._store, keys.BROKERS)
        present = {item.key for item in found.items}
        for broker_id in [each for each in self._items if keys.broker(each) not in present]:
            self.forget(broker_id, found.revision)
        for item in found.items:
            self.learn(item)
        self._revision = found.revision

    async def follow(self) -> None:
        """Until the store closes. `load` them first."""
        while True:
            try:
                async for changes in self._store.watch(keys.BROKERS, from_revision=self._revision + 1):
                    for event in changes.events:
                        if event.value is not None:
                            self.learn(KeyValue(event.key, event.value, 0, event.revision, 0))
                        elif isinstance(key := keys.parse(event.key), keys.BrokerKey):
                            self.forget(key.broker_id, event.revision)
                    self._revision = changes.revision
                return
            except RevisionCompacted:
                await self.load()
