"""The clients of a simulation: small, deterministic, and each with one promise to look after.

Every actor works until the world is healed, and then until it has succeeded once more: a node that is safe and never serves
again is broken too.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec
from tests.simulation.checkers import Ledger, Outcome, Transaction
from tests.simulation.client import READ_COMMITTED, Client, Page, Refused, acknowledged, batch_of
from tests.simulation.cluster import Machine, World
from tests.simulation.network import Address
from tests.support.checker import Place
from tests.support.raw_kafka import EARLIEST, LATEST, Producer

from headrace.records.record import Record
from headrace.wire.kafka.error_codes import ErrorCode

LATER: Final = frozenset({3, 5, 6, 7, 14, 15, 16, 51, 56, 89})
"""Codes that promise nothing and break nothing."""
FENCED: Final = frozenset({22, 25, 27, 47, 48, 49, 90})
"""Codes that tell a group member or a transaction to begin anew."""
FORGOTTEN: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})

ANY_TIME: Final = {"message.timestamp.after.max.ms": str(2**62)}
"""The clients' clocks are right, the nodes' are not."""
WAL_TOPIC, OBJECT_TOPIC, TXN_TOPIC = "on-wal", "on-objects", "in-transactions"
TOPICS: Final[dict[str, dict[str, str]]] = {
    WAL_TOPIC: {"durability": "wal", **ANY_TIME},
    OBJECT_TOPIC: {"durability": "object", **ANY_TIME},
    TXN_TOPIC: {"durability": "wal", **ANY_TIME},
}
PARTITIONS: Final = 2
TXN_GROUP: Final = "of-transactions"


class Scene:
    """What actors share."""

    is_shared: ClassVar[bool] = False
    """Whether there are several brokers."""

    def __init__(self, world: World, machine: Machine, ledger: Ledger) -> None:
        self.world = world
        self.machine = machine
        self.ledger = ledger
        self.is_healed = False
        self.is_written = False
        """Healed, and nobody writes any more."""
        self.logs: dict[Place, list[Record]] = {}
        """What the node has of each partition, once everything was read."""

    async def address_of(self, actor: "Actor") -> Address:
        """Where this actor goes."""
        return self.machine.address


class Actor:
    tolerated: ClassVar[frozenset[int]] = LATER

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.ledger = scene.ledger
        self.name = name
        self.chance = scene.world.source(f"{scene.machine.name} {name}")
        self.is_done = False

    async def live(self) -> None:
        while not self.is_done:
            try:
                address = await self.scene.address_of(self)
                client = await Client(self.name).connect(self.scene.world.network, address)
                try:
                    await self.session(client)
                finally:
                    client.close()
            except (OSError, TimeoutError):
                pass
            except Refused as refused:
                self.note(f"refused: {refused}")
                if refused.code not in self.tolerated:
                    self.ledger.violated(f"{self.name}: {refused}")
            await self.rest(0.05, 0.4)

    async def session(self, client: Client) -> None:
        raise NotImplementedError

    async def rest(self, shortest_s: float, longest_s: float) -> None:
        await asyncio.sleep(self.chance.uniform(shortest_s, longest_s))

    def note(self, what: str) -> None:
        self.scene.world.note(self.name, what)

    def now_s(self) -> float:
        return self.scene.world.loop.time()

    def now_ms(self) -> int:
        """A client's own clock: it does not jump."""
        return 1_700_000_000_000 + int(self.scene.world.loop.time() * 1000)

    def padding(self) -> bytes:
        return b"." * self.chance.choice((0, 10, 100, 1000, 4000))


class PlainProducer(Actor):
    """Each value is sent once: acknowledged it stays, otherwise it may."""

    def __init__(self, scene: Scene, name: str, place: Place) -> None:
        super().__init__(scene, name)
        self._place = place
        self._numbers = itertools.count()

    async def session(self, client: Client) -> None:
        while not self.is_done:
            sent: list[tuple[list[bytes], float, asyncio.Future[memoryview]]] = []
            for _ in range(self.chance.randint(1, 3)):
                values = self._values()
                batch = batch_of(values, now_ms=self.now_ms())
                sent.append(
                    (values, self.now_s(), client.send_batch(*self._place, batch, acks=self.chance.choice((1, -1))))
                )
            was_healed = self.scene.is_healed
            try:
                for values, sent_s, waiter in sent:
                    offset = await acknowledged(waiter)
                    self.note(f"acked {offset}")
                    self.ledger.note_acked(self._place, offset, values, sent_s=sent_s)
            finally:
                for _, _, waiter in sent:
                    waiter.cancel()
            self.is_done = was_healed
            await self.rest(0.02, 0.3)

    def _values(self) -> list[bytes]:
        count = self.chance.choice((1, 1, 3))
        return [b"%s %d %s" % (self.name.encode(), next(self._numbers), self.padding()) for _ in range(count)]


class IdempotentProducer(Actor):
    """Several batches in flight, each repeated with its sequence number until it is acknowledged."""

    tolerated = LATER | FORGOTTEN

    def __init__(self, scene: Scene, name: str, place: Place) -> None:
        super().__init__(scene, name)
        self._place = place
        self._numbers = itertools.count()
        self._producer: Producer | None = None
        self._has_acked = False
        self._sequence = 0
        self._unacked: deque[tuple[int, list[bytes]]] = deque()
        self._first_sent_s: dict[int, float] = {}
        """By sequence number: what is repeated may have been stored at any time since."""
        self._in_flight = self.chance.randint(1, 4)

    async def session(self, client: Client) -> None:
        if self._producer is None:
            self._producer = await client.init_producer()
        waiting = deque(self._send(client, *batch) for batch in self._unacked)
        is_first = True
        try:
            while not self.is_done:
                was_healed = self.scene.is_healed
                while len(self._unacked) < self._in_flight:
                    values = [b"%s %d %s" % (self.name.encode(), next(self._numbers), self.padding())]
                    batch = (self._sequence, values)
                    self._sequence += len(values)
                    self._unacked.append(batch)
                    self._first_sent_s[batch[0]] = self.now_s()
                    waiting.append(self._send(client, *batch))
                await self._heed(waiting.popleft(), is_first=is_first)
                is_first = False
                self.is_done = was_healed and self.chance.random() < 0.5
                await self.rest(0.01, 0.2)
        finally:
            for waiter in waiting:
                waiter.cancel()

    def _send(self, client: Client, sequence: int, values: list[bytes]) -> "asyncio.Future[memoryview]":
        batch = batch_of(values, now_ms=self.now_ms(), producer=self._producer, sequence=sequence)
        return client.send_batch(*self._place, batch)

    def _begin_anew(self) -> None:
        self._producer = None
        self._has_acked = False
        self._sequence = 0
        self._unacked.clear()

    async def _heed(self, waiter: "asyncio.Future[memoryview]", *, is_first: bool) -> None:
        try:
            offset = await acknowledged(waiter)
        except Refused as refused:
            if refused.code in FORGOTTEN and is_first and self.scene.is_shared and not self._has_acked:
                # As with Kafka: its first batch came before the partition was open, and the second one after.
                self._begin_anew()
            elif refused.code in FORGOTTEN and is_first:
                # Nothing was sent before it that may still be missing: the node has forgotten this producer.
                self.ledger.note_forgotten(self.name, self._place, self._unacked[0][1], str(refused))
                self._begin_anew()
            raise
        self._has_acked = True
        sequence, values = self._unacked.popleft()
        self.note(f"acked {offset}")
        self.ledger.note_acked(self._place, offset, values, sent_s=self._first_sent_s[sequence])


class TransactionalProducer(Actor):
    """Decides first, writes then, and keeps its word: what is to be aborted is never committed."""

    tolerated: ClassVar[frozenset[int]] = LATER | FENCED | FORGOTTEN
    PARTITIONS: ClassVar[int] = PARTITIONS
    OFFSETS_OF: ClassVar[str] = WAL_TOPIC

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self._numbers = itertools.count()
        self._values = itertools.count()

    async def session(self, client: Client) -> None:
        producer = await client.init_producer(self.name, timeout_ms=self.chance.choice((3_000, 20_000)))
        sequences = [0] * self.PARTITIONS
        while not self.is_done:
            was_healed = self.scene.is_healed
            await self._run(client, producer, sequences)
            self.is_done = was_healed
            await self.rest(0.02, 0.5)

    async def _run(self, client: Client, producer: Producer, sequences: list[int]) -> None:
        number = next(self._numbers)
        is_commit = self.chance.random() < 0.6
        transaction = self.ledger.transactions[f"{self.name}/{number}"] = Transaction(f"{self.name}/{number}", [])
        every = range(self.PARTITIONS)
        partitions = list(every) if self.chance.random() < 0.7 else [self.chance.choice(every)]
        await client.add_partitions(self.name, producer, TXN_TOPIC, partitions)
        for partition in partitions * self.chance.choice((1, 1, 2)):
            value = b"%s %d %s" % (self.name.encode(), next(self._values), transaction.name.encode())
            transaction.values.append(value)
            batch = batch_of(
                [value], now_ms=self.now_ms(), producer=producer, sequence=sequences[partition], in_transaction=True
            )
            sequences[partition] += 1
            sent_s = self.now_s()
            offset = await self._send(client, partition, batch)
            self.ledger.note_acked((TXN_TOPIC, partition), offset, [value], sent_s=sent_s)
        if self.chance.random() < 0.5 and await self._commit_offset(client, producer, number):
            transaction.offset = number
        if self.chance.random() < 0.05:
            await self.rest(2.0, 8.0)
        if is_commit:
            transaction.outcome = Outcome.ASKED
        await client.end_transaction(self.name, producer, is_commit=is_commit)
        transaction.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        self.note(f"{transaction.name} {transaction.outcome.value}")

    async def _send(self, client: Client, partition: int, batch: bytes) -> int:
        return await client.produce(TXN_TOPIC, partition, batch, self.name)

    async def _commit_offset(self, client: Client, producer: Producer, number: int) -> bool:
        """Whether one was committed."""
        await client.add_offsets(self.name, producer, TXN_GROUP)
        await client.commit_offsets(self.name, producer, TXN_GROUP, self.OFFSETS_OF, number)
        return True


class Consumer(Actor):
    """Reads a topic from its start to its end, and then waits for more."""

    def __init__(
        self,
        scene: Scene,
        name: str,
        topic: str,
        *,
        isolation: int = 0,
        partitions: Sequence[int] = range(PARTITIONS),
    ) -> None:
        super().__init__(scene, name)
        self.topic = topic
        self.partitions = partitions
        self._isolation = isolation
        self._positions: dict[int, int] = {}

    async def session(self, client: Client) -> None:
        while not self.is_done:
            was_written = self.scene.is_written
            is_behind = False
            for partition in self.partitions:
                is_behind |= await self._read(client, partition)
            self.is_done = was_written and not is_behind
            if self.chance.random() < 0.01:
                await self.rest(0.5, 5.0)

    async def _read(self, client: Client, partition: int) -> bool:
        """Whether there may be more."""
        offset = self._positions.get(partition)
        if offset is None:
            offset = await client.offset_at(self.topic, partition, EARLIEST)
        found = await client.fetch(self.topic, partition, offset, isolation=self._isolation)
        page = Page(found, offset)
        place = (self.topic, partition)
        if page.has_bad_crc:
            self.ledger.violated(f"{self.name}: a damaged batch at {offset} of {place}")
        if self._isolation == READ_COMMITTED:
            self.ledger.note_seen_committed(place, page.records)
        self.ledger.note_read(self.name, place, page.records, found.high_watermark)
        if page.following > offset:
            self.note(f"read {partition} to {page.following}")
        self._positions[partition] = page.following
        return page.following < await client.offset_at(self.topic, partition, LATEST, isolation=self._isolation)


class Committer(Actor):
    """Commits one offset after the other, without being a member of anything."""

    GROUP: Final = "committer"

    def __init__(self, scene: Scene, name: str, place: Place = (WAL_TOPIC, 0)) -> None:
        super().__init__(scene, name)
        self._committed_place = place
        self._next = 0

    async def session(self, client: Client) -> None:
        place = self._committed_place
        while not self.is_done:
            was_healed = self.scene.is_healed
            offset, self._next = self._next, self._next + 1
            self.ledger.note_commit_tried(self.GROUP, place, offset)
            await client.commit(self.GROUP, *place, offset)
            self.ledger.note_commit_acked(self.GROUP, place, offset)
            known = self.ledger.acked_commit(self.GROUP, place)
            self.ledger.note_committed(self.GROUP, place, await client.committed(self.GROUP, *place), at_least=known)
            self.is_done = was_healed
            await self.rest(0.05, 0.4)


class GroupMember(Actor):
    """Consumes with others, commits what it has read, and now and then sleeps until it is thrown out."""

    GROUP: Final = "members"
    SESSION_MS: Final = 3_000
    tolerated = LATER | FENCED

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self._member_id = ""

    async def session(self, client: Client) -> None:
        try:
            joined = await client.join(self.GROUP, self._member_id, session_ms=self.SESSION_MS)
            self._member_id = joined.member_id
            shares: dict[str, bytes] = {}
            if joined.leader == joined.member_id:
                members = sorted(each.member_id for each in joined.members)
                shares = {
                    member: msgspec.json.encode(list(range(number, PARTITIONS, len(members))))
                    for number, member in enumerate(members)
                }
            share = await client.sync(self.GROUP, joined, shares)
        except Refused:
            self._member_id = ""
            raise
        partitions = msgspec.json.decode(share or b"[]", type=list[int])
        self.note(f"generation {joined.generation_id} has {partitions}")
        positions = {partition: await self._begin(client, partition) for partition in partitions}
        while not self.is_done:
            was_healed = self.scene.is_healed
            await client.heartbeat(self.GROUP, joined)
            for partition, position in positions.items():
                page = Page(await client.fetch(WAL_TOPIC, partition, position, wait_ms=50), position)
                if self.chance.random() < 0.04:
                    await self.rest(4.0, 9.0)
                place = (WAL_TOPIC, partition)
                self.ledger.note_commit_tried(self.GROUP, place, page.following)
                await client.commit(self.GROUP, *place, page.following, joined)
                self.ledger.note_commit_acked(self.GROUP, place, page.following)
                positions[partition] = page.following
            self.is_done = was_healed
            await self.rest(0.1, 0.6)

    async def _begin(self, client: Client, partition: int) -> int:
        place = (WAL_TOPIC, partition)
        at_least = self.ledger.acked_commit(self.GROUP, place)
        offset = await client.committed(self.GROUP, *place)
        self.ledger.note_committed(self.GROUP, place, offset, at_least=at_least)
        return max(offset, 0)


def actors(scene: Scene) -> list[Actor]:
    """Writers first."""
    found: list[Actor] = []
    for topic in (WAL_TOPIC, OBJECT_TOPIC):
        for partition in range(PARTITIONS):
            found.append(PlainProducer(scene, f"plain-{topic}-{partition}", (topic, partition)))
            found.append(IdempotentProducer(scene, f"idempotent-{topic}-{partition}", (topic, partition)))
    found.append(TransactionalProducer(scene, "txn-a"))
    found.append(Committer(scene, "committer"))
    found += [GroupMember(scene, f"member-{number}") for number in range(2)]
    return found


def readers(scene: Scene) -> list[Actor]:
    return [
        Consumer(scene, "reader-wal", WAL_TOPIC),
        Consumer(scene, "reader-objects", OBJECT_TOPIC),
        Consumer(scene, "reader-committed", TXN_TOPIC, isolation=READ_COMMITTED),
    ]
