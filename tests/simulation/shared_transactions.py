"""A transactional producer over several brokers: its coordinator, the leaders of its partitions and its group's coordinator are
each looked for, and looked for again when they have changed."""

import asyncio
from typing import ClassVar, Final

from tests.simulation.client import READ_COMMITTED, Client, Refused
from tests.simulation.load import ANY_TIME, FENCED, FORGOTTEN, LATER, TXN_GROUP, TXN_TOPIC, Actor, TransactionalProducer
from tests.simulation.shared import TOPIC, SharedScene, coordinator, leader
from tests.support.checker import Place
from tests.support.raw_kafka import LATEST, Producer

from headrace.records.record import Record
from headrace.wire.kafka.error_codes import ErrorCode

TXN_TOPICS: Final = {TXN_TOPIC: {"durability": "object", **ANY_TIME}}
TXN_PARTITIONS: Final = 3
_ATTEMPTS: Final = 12
_AGAIN: Final = LATER | {ErrorCode.NOT_ENOUGH_REPLICAS}


class SharedTransactionalProducer(TransactionalProducer):
    tolerated: ClassVar[frozenset[int]] = LATER | FENCED | FORGOTTEN | {19, 120}
    PARTITIONS: ClassVar[int] = TXN_PARTITIONS
    OFFSETS_OF: ClassVar[str] = TOPIC

    def __init__(self, scene: SharedScene, name: str, *, commits_offsets: bool) -> None:
        super().__init__(scene, name)
        self._shared = scene
        self._routes: dict[str | Place, Client] = {}
        self._commits_offsets = commits_offsets

    async def session(self, client: Client) -> None:
        try:
            await super().session(client)
        finally:
            for each in self._routes.values():
                each.close()
            self._routes.clear()

    async def _send(self, client: Client, partition: int, batch: bytes) -> int:
        """Repeated at whoever leads the partition by then: the same batch, with its sequence number."""
        place = (TXN_TOPIC, partition)
        for _ in range(_ATTEMPTS):
            try:
                return await (await self._route(place)).produce(*place, batch, self.name)
            except (OSError, TimeoutError):
                self._forget(place)
            except Refused as refused:
                self.note(f"again: {refused}")
                if refused.code not in _AGAIN:
                    raise
                self._forget(place)
            await self.rest(0.05, 0.3)
        raise TimeoutError

    async def _commit_offset(self, client: Client, producer: Producer, number: int) -> bool:
        if not self._commits_offsets:
            return False
        await client.add_offsets(self.name, producer, TXN_GROUP)
        for _ in range(_ATTEMPTS):
            try:
                there = await self._route(TXN_GROUP)
                await there.commit_offsets(self.name, producer, TXN_GROUP, self.OFFSETS_OF, number)
                return True
            except (OSError, TimeoutError):
                self._forget(TXN_GROUP)
            except Refused as refused:
                if refused.code not in _AGAIN:
                    raise
                self._forget(TXN_GROUP)
            await self.rest(0.05, 0.3)
        raise TimeoutError

    async def _route(self, to: str | Place) -> Client:
        """A connection to the leader of a place, or to the coordinator of a group."""
        if to not in self._routes:
            client = await Client(self.name).connect(self.scene.world.network, await found(self._shared, to))
            self._routes[to] = client
        return self._routes[to]

    def _forget(self, to: str | Place) -> None:
        if to in self._routes:
            self._routes.pop(to).close()


async def found(scene: SharedScene, to: str | Place) -> tuple[str, int]:
    client = await Client("asks").connect(scene.world.network, scene.any_machine().address)
    try:
        return await (coordinator(client, to) if isinstance(to, str) else leader(client, to))
    finally:
        client.close()


def transactional_actors(scene: SharedScene) -> list[Actor]:
    return [
        SharedTransactionalProducer(scene, "txn-a", commits_offsets=True),
        SharedTransactionalProducer(scene, "txn-b", commits_offsets=False),
    ]


async def verify_transactions(scene: SharedScene) -> None:
    """Once none is open any more, which the faults must not prevent."""
    seen: list[Record] = []
    for partition in range(TXN_PARTITIONS):
        seen += await _until_read(scene, partition)
    committed = await _until_committed(scene)
    scene.ledger.verify_transactions((record.value or b"" for record in seen), committed)


async def _until_read(scene: SharedScene, partition: int) -> list[Record]:
    while True:
        try:
            address = await found(scene, (TXN_TOPIC, partition))
            client = await Client("verifier").connect(scene.world.network, address)
            try:
                end = await client.offset_at(TXN_TOPIC, partition, LATEST)
                if await client.offset_at(TXN_TOPIC, partition, LATEST, isolation=READ_COMMITTED) == end:
                    return await client.read_all(TXN_TOPIC, partition, isolation=READ_COMMITTED)
            finally:
                client.close()
        except (OSError, TimeoutError, Refused) as error:
            scene.world.note("verifier", str(error))
        await asyncio.sleep(0.2)


async def _until_committed(scene: SharedScene) -> int:
    """The offset that the group has, once no transaction holds one."""
    while True:
        try:
            client = await Client("verifier").connect(scene.world.network, await found(scene, TXN_GROUP))
            try:
                return await client.committed(TXN_GROUP, TOPIC, 0)
            finally:
                client.close()
        except (OSError, TimeoutError, Refused) as error:
            scene.world.note("verifier", str(error))
        await asyncio.sleep(0.2)
