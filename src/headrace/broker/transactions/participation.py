"""Whether a partition that this broker leads is part of a producer's transaction (KIP-890): its coordinator knows, and is asked.

A batch that was long on its way may arrive when its transaction is over; taken in, it would open one that nobody closes, and hold
every read_committed reader of the partition for good. So the first batch of a transaction waits until the coordinator has said
that the partition is part of it; those behind it find the transaction open in the log.

Between the coordinator's word and the batch, the transaction may end: its marker takes the word back. A word is for one producer
epoch and one partition, and for as long as this broker leads it.
"""

from dataclasses import dataclass
from typing import Final

from headrace.broker.peers import calls
from headrace.broker.peers.calls import PartTaken, Peers, TakePart
from headrace.broker.topics import Topics
from headrace.broker.transactions.events import Identity, TopicPartition, TransactionError
from headrace.broker.transactions.first_batches import is_open_in
from headrace.broker.transactions.service import Transactions
from headrace.errors import HeadraceError, NotLeader, ProducerFenced, TransactionNotOpen
from headrace.log.partition import PartitionLog
from headrace.records.batch import BatchHeader

WORDS_MAX: Final = 10_000
"""Beyond that the oldest is forgotten: its batch has not come since, and has to be asked for again."""

_Place = tuple[bytes, int, int, int]
"""Topic id, partition, leader epoch, producer id."""


@dataclass(slots=True)
class _Word:
    epoch: int
    is_given: bool = False


class Participation:
    def __init__(self, transactions: Transactions, topics: Topics) -> None:
        self._transactions = transactions
        self._topics = topics
        self._words: dict[_Place, _Word] = {}
        self.peers: Peers | None = None
        """The other brokers, where there are any."""

    def to_ask_for(
        self, transactional_id: str, producer: Identity, places: frozenset[TopicPartition], *, is_adding: bool
    ) -> frozenset[TopicPartition]:
        """Those of `places` for which `ask` has to be awaited before records are taken."""
        if self.peers is None:
            return self._transactions.not_added(transactional_id, producer, places) if is_adding else frozenset()
        if self._transactions.is_here(transactional_id):
            return self._transactions.not_added(transactional_id, producer, places) if is_adding else frozenset()
        return frozenset(each for each in places if not self._is_known(each, producer))

    async def ask(
        self, transactional_id: str, producer: Identity, places: frozenset[TopicPartition], *, is_adding: bool
    ) -> TransactionError:
        """Ask the coordinator; with `is_adding` it makes them a part of the transaction. An error is for all of them.

        Those that are no part of it are refused when their records come.
        """
        words = {each: self._begin(each, producer) for each in places}
        try:
            taken = await self._ask(transactional_id, producer, places, is_adding=is_adding)
        except HeadraceError:
            return TransactionError.COORDINATOR_NOT_AVAILABLE
        error = TransactionError[taken.error]
        if error is TransactionError.NONE:
            missing = {TopicPartition(*each) for each in taken.missing}
            for place, word in words.items():
                if place not in missing and word is not None:
                    word.is_given = True
        return error

    async def _ask(
        self, transactional_id: str, producer: Identity, places: frozenset[TopicPartition], *, is_adding: bool
    ) -> PartTaken:
        transactions = self._transactions
        if self.peers is None or transactions.is_led_here(transactional_id):
            return await transactions.take_part(transactional_id, producer, places, is_adding=is_adding)
        call = TakePart(
            transactional_id,
            transactions.epoch_of(transactional_id),
            producer.producer_id,
            producer.epoch,
            sorted((each.topic, each.partition) for each in places),
            is_adding,
        )
        coordinator = transactions.known_leader_of(transactional_id)
        return await calls.ask(self.peers, coordinator, call, PartTaken)

    def check_append(self, partition: PartitionLog, header: BatchHeader) -> None:
        """Raise unless a transactional batch belongs to an open transaction that its partition is part of."""
        if self.peers is None or self._transactions.knows(header.producer_id):
            self._transactions.check_append(partition, header)
            return
        if partition.removed:
            # Whoever leads it asks for itself. To be told that there is no transaction, a client would give it up.
            raise NotLeader(f"{partition.topic_name}-{partition.index} is led elsewhere")
        word = self._words.get(_place(partition, header.producer_id))
        if word is not None and word.is_given and word.epoch == header.producer_epoch:
            return
        producers = partition.producers
        newest = None if producers is None else producers.epoch_of(header.producer_id)
        if newest is not None and header.producer_epoch < newest:
            raise ProducerFenced(f"producer {header.producer_id} epoch {header.producer_epoch}, newest is {newest}")
        if not is_open_in(partition, header.producer_id, header.producer_epoch):
            raise TransactionNotOpen(
                f"{partition.topic_name}-{partition.index} is no part of an open transaction of producer "
                f"{header.producer_id}, as far as its coordinator has said"
            )

    def check_offsets(self, transactional_id: str, producer: Identity, group_id: str) -> TransactionError:
        """May offsets of the group be committed in this transaction? What there is to ask for has been asked."""
        if self.peers is None or self._transactions.is_here(transactional_id):
            return self._transactions.check_offsets(transactional_id, producer, group_id)
        place = self._transactions.offsets_of(group_id)
        is_known = self._is_known(place, producer)
        return TransactionError.NONE if is_known else TransactionError.INVALID_TXN_STATE

    def ended(self, partition: PartitionLog, producer_id: int) -> None:
        """A marker of that producer is in the partition: what was said of its transaction is over."""
        if self._words:
            self._words.pop(_place(partition, producer_id), None)

    def _is_known(self, place: TopicPartition, producer: Identity) -> bool:
        """Whether the log or the coordinator has said so already. Nobody asks for what is not led here: it is refused anyway."""
        partition = self._find(place)
        if partition is None:
            return True
        word = self._words.get(_place(partition, producer.producer_id))
        if word is not None and word.is_given and word.epoch == producer.epoch:
            return True
        return is_open_in(partition, producer.producer_id, producer.epoch)

    def _find(self, place: TopicPartition) -> PartitionLog | None:
        if not self._topics.has_partition(place.topic, place.partition):
            return None
        partition = self._topics.partition(place.topic, place.partition)
        return None if partition.removed else partition

    def _begin(self, place: TopicPartition, producer: Identity) -> _Word | None:
        """The word that is asked for now: it counts only if no marker comes before the answer."""
        partition = self._find(place)
        if partition is None:
            return None
        key = _place(partition, producer.producer_id)
        word = self._words.get(key)
        if word is None or word.epoch != producer.epoch:
            if word is None and len(self._words) >= WORDS_MAX:
                del self._words[next(iter(self._words))]
            word = self._words[key] = _Word(producer.epoch)
        return word


def _place(partition: PartitionLog, producer_id: int) -> _Place:
    return partition.topic_id, partition.index, partition.leader_epoch, producer_id
