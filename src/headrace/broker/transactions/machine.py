"""The coordinator of one transactional id as a machine: requests and time in, answers and things to do out.

States, as they lie in the transaction log:

- `EMPTY`: a producer has this id; no transaction has been opened under its present epoch.
- `ONGOING`: partitions have been added; the clock of `timeout_ms` runs.
- `PREPARE_COMMIT`, `PREPARE_ABORT`: the outcome is durable and can no longer change; markers are being written.
- `COMPLETE_COMMIT`, `COMPLETE_ABORT`: every partition has its marker.
- `DEAD`: unused for so long that it was forgotten.

Rules: a state is entered when its image is durable, never before. The client hears "committed" when the prepare
is durable, for from there on every restart ends the same way. A newcomer with the same id, or the timeout, fences
the old producer by a higher epoch, aborts what it left open, and only then begins. Requests of the rightful
producer that arrive while an image or markers are on their way wait for them, rather than being sent away to come
back after a pause: that pause would be longer than the wait.

Where the client knows the second version of transactions (KIP-890), each end raises the epoch: the prepare has the next one, its
markers carry it, and the client is told it. So what is late of one transaction can never be taken for a part of the next.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from headrace.broker.transactions.events import (
    Action,
    AddPartitions,
    Answer,
    AnswerProducer,
    End,
    Event,
    Identity,
    Init,
    MarkersWritten,
    Persist,
    Persisted,
    PersistFailed,
    Tick,
    TimedOut,
    TransactionError,
    TransactionImage,
    TransactionState,
    WriteMarkers,
)

EPOCH_MAX = 32_767
"""An int16 on the wire. The last value is kept for fencing, so producers get at most one less."""

PATIENCE_MS = 5_000
"""How long a request waits for markers before it is told to come back."""

WAITING_MAX = 64
"""A producer has one request in flight; more than a few are a client gone mad."""

RETRY_MS = 1_000
"""Pause after a failed write of the transaction log, before what is overdue is tried again."""

PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class TransactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    timeout_ms_max: int = 900_000
    expiration_ms: int = 7 * 24 * 3600 * 1000
    """An id nobody has used for this long is forgotten."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    request: AddPartitions | End
    until_ms: int


@dataclass(slots=True)
class TransactionMachine:
    settings: TransactionSettings
    image: TransactionImage
    """What is durable."""
    _pending: TransactionImage | None = None
    """What is on its way to become durable."""
    _pending_answer: Action | None = None
    _is_forgetting: bool = False
    _waiting: deque[Waiting] = field(default_factory=deque)
    _retry_ms: int = 0

    @property
    def state(self) -> TransactionState:
        return self.image.state

    @property
    def is_busy(self) -> bool:
        return self._pending is not None or self._is_forgetting or self.state in PREPARED

    def step(self, event: Event, *, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Init():
                self._init(event, now_ms, actions)
            case AddPartitions() | End():
                self._take(event, now_ms, actions)
            case Tick():
                self._tick(now_ms, actions)
            case Persisted():
                self._persisted(now_ms, actions)
            case PersistFailed():
                self._persist_failed(now_ms, actions)
            case MarkersWritten():
                self._markers_written(now_ms, actions)
            case _:
                assert_never(event)
        return actions

    def resume(self) -> list[Action]:
        """A coordinator takes over: an outcome that was decided is carried out."""
        return [self._markers()] if self.state in PREPARED else []

    @property
    def next_deadline_ms(self) -> int | None:
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterable[int]:
        if self._waiting:
            yield self._waiting[0].until_ms
        if self.is_busy or self.state is TransactionState.DEAD:
            return
        if self.state is TransactionState.ONGOING:
            yield max(self.image.started_ms + self.image.timeout_ms, self._retry_ms)
        else:
            yield max(self.image.updated_ms + self.settings.expiration_ms, self._retry_ms)

    # -- init

    def _init(self, event: Init, now_ms: int, actions: list[Action]) -> None:
        error = self._refuse_init(event)
        if error is TransactionError.NONE and self.state is TransactionState.ONGOING:
            self._fence(now_ms, actions)
            error = TransactionError.CONCURRENT_TRANSACTIONS
        if error is not TransactionError.NONE:
            actions.append(AnswerProducer(ticket=event.ticket, error=error))
            return
        image = self._next_identity(event, now_ms)
        if image is None:
            actions.append(AnswerProducer(ticket=event.ticket, error=TransactionError.PRODUCER_FENCED))
            return
        answer = AnswerProducer(
            ticket=event.ticket, producer=Identity(producer_id=image.producer_id, epoch=image.epoch)
        )
        self._persist(image, answer, actions)

    def _refuse_init(self, event: Init) -> TransactionError:
        if not 0 < event.timeout_ms <= self.settings.timeout_ms_max:
            return TransactionError.INVALID_TRANSACTION_TIMEOUT
        if self.is_busy or self.state is TransactionState.DEAD:
            return TransactionError.CONCURRENT_TRANSACTIONS
        if event.expected is not None and not self._may_be(event.expected):
            return TransactionError.PRODUCER_FENCED
        return TransactionError.NONE

    def _may_be(self, expected: Identity) -> bool:
        """Could this be the present producer, or one that missed the answer to its last init?"""
        image = self.image
        missed_rotation = expected.producer_id == image.previous_producer_id and expected.epoch >= EPOCH_MAX - 1
        return image.epoch < 0 or expected.producer_id == image.producer_id or missed_rotation

    def _next_identity(self, event: Init, now_ms: int) -> TransactionImage | None:
        """The image with a new epoch, or a new producer id where epochs have run out; None: fenced."""
        image, expected = self.image, event.expected
        changes = {
            "timeout_ms": event.timeout_ms,
            "updated_ms": now_ms,
            "state": TransactionState.EMPTY,
            "is_bumped": False,
        }
        is_present = expected is None or expected.epoch == image.epoch
        # The very last epoch fences its owner, who may come back and is not told it.
        is_fenced_owner = image.epoch == EPOCH_MAX and expected is not None and expected.epoch == image.previous_epoch
        if image.epoch >= EPOCH_MAX - 1 and (is_present or is_fenced_owner):
            return msgspec.structs.replace(
                image,
                producer_id=event.spare_producer_id,
                epoch=0,
                previous_producer_id=image.producer_id,
                previous_epoch=-1 if expected is None else expected.epoch,
                **changes,
            )
        if expected is None:
            return msgspec.structs.replace(image, epoch=image.epoch + 1, previous_epoch=-1, **changes)
        if image.epoch < 0 or expected.epoch == image.epoch:
            return msgspec.structs.replace(image, epoch=image.epoch + 1, previous_epoch=expected.epoch, **changes)
        if expected.epoch == image.previous_epoch:
            return msgspec.structs.replace(image, **changes)  # The bump was made, and nobody has heard of it.
        return None

    def _fence(self, now_ms: int, actions: list[Action]) -> None:
        """Abort what is open under an epoch that nobody has.

        Its owner gets that epoch if it is the first to ask for it by its own (KIP-360), or aborts what is aborted (KIP-890), as
        with Kafka.
        """
        image = self.image
        fenced = msgspec.structs.replace(
            image,
            epoch=min(image.epoch + 1, EPOCH_MAX),
            previous_epoch=image.epoch,
            is_bumped=False,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
        )
        self._persist(fenced, None, actions)

    # -- the rightful producer's requests

    def _take(self, request: AddPartitions | End, now_ms: int, actions: list[Action]) -> None:
        if not self.is_busy:
            self._serve(request, now_ms, actions)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append(Waiting(request=request, until_ms=now_ms + PATIENCE_MS))
        else:
            actions.append(_refusal(request, TransactionError.CONCURRENT_TRANSACTIONS))

    def _serve(self, request: AddPartitions | End, now_ms: int, actions: list[Action]) -> None:
        if isinstance(request, End) and request.is_bumping and self._is_repeated(request.producer):
            self._end_again(request, actions)
            return
        error = self._check_identity(request.producer)
        if error is not TransactionError.NONE:
            actions.append(_refusal(request, error))
        elif isinstance(request, AddPartitions):
            self._add_partitions(request, now_ms, actions)
        elif self.state is TransactionState.ONGOING:
            self._prepare(request, now_ms, actions)
        elif request.is_bumping:
            self._end_nothing(request, now_ms, actions)
        else:
            self._end(request, actions)

    def _check_identity(self, producer: Identity) -> TransactionError:
        is_gone = self.state is TransactionState.DEAD or self.image.epoch < 0
        if is_gone or producer.producer_id != self.image.producer_id:
            return TransactionError.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != self.image.epoch:
            return TransactionError.PRODUCER_FENCED
        return TransactionError.NONE

    def _add_partitions(self, request: AddPartitions, now_ms: int, actions: list[Action]) -> None:
        image = self.image
        is_open = image.state is TransactionState.ONGOING
        if is_open and request.partitions <= image.partitions:
            actions.append(Answer(ticket=request.ticket))
            return
        grown = msgspec.structs.replace(
            image,
            state=TransactionState.ONGOING,
            partitions=(image.partitions if is_open else frozenset()) | request.partitions,
            started_ms=image.started_ms if is_open else now_ms,
            updated_ms=now_ms,
        )
        self._persist(grown, Answer(ticket=request.ticket), actions)

    def _prepare(self, request: End, now_ms: int, actions: list[Action]) -> None:
        outcome = TransactionState.PREPARE_COMMIT if request.is_commit else TransactionState.PREPARE_ABORT
        image = msgspec.structs.replace(self.image, state=outcome, updated_ms=now_ms, is_bumped=request.is_bumping)
        if not request.is_bumping:
            self._persist(image, Answer(ticket=request.ticket), actions)
            return
        if self._is_used_up and request.spare_producer_id < 0:
            # Nobody could know when the request came in; with the next one it is known.
            actions.append(_refusal(request, TransactionError.CONCURRENT_TRANSACTIONS))
            return
        image = msgspec.structs.replace(
            image,
            epoch=self.image.epoch + 1,
            previous_epoch=self.image.epoch,
            next_producer_id=request.spare_producer_id if self._is_used_up else -1,
        )
        self._persist(image, AnswerProducer(ticket=request.ticket, producer=_successor(image)), actions)

    @property
    def _is_used_up(self) -> bool:
        """The last epoch that a producer may have is this one."""
        return self.image.epoch >= EPOCH_MAX - 1

    def _is_repeated(self, producer: Identity) -> bool:
        """Is this the end that has raised the epoch already, sent again because its answer was lost?

        So is one of the owner of a transaction that was aborted for it, as with Kafka: it may go on (ADR 0050).
        """
        image = self.image
        if self.state not in _COMPLETE.values():
            return False
        if producer.producer_id == image.producer_id and producer.epoch == image.epoch - 1:
            return image.is_bumped or (producer.epoch == image.previous_epoch and image.epoch < EPOCH_MAX)
        is_before_rotation = producer.producer_id == image.previous_producer_id and producer.epoch == EPOCH_MAX - 1
        return image.is_bumped and is_before_rotation and image.epoch == 0

    def _end_again(self, request: End, actions: list[Action]) -> None:
        if request.is_commit != (self.state is TransactionState.COMPLETE_COMMIT):
            actions.append(_refusal(request, TransactionError.INVALID_TXN_STATE))
        else:
            actions.append(AnswerProducer(ticket=request.ticket, producer=_successor(self.image)))

    def _end_nothing(self, request: End, now_ms: int, actions: list[Action]) -> None:
        """No partition was added. A client that aborts may have sent records that never arrived: they shall not, later."""
        if request.is_commit:
            actions.append(_refusal(request, TransactionError.INVALID_TXN_STATE))
            return
        if self._is_used_up and request.spare_producer_id < 0:
            actions.append(_refusal(request, TransactionError.CONCURRENT_TRANSACTIONS))
            return
        image = msgspec.structs.replace(
            self.image,
            epoch=self.image.epoch + 1,
            previous_epoch=self.image.epoch,
            next_producer_id=request.spare_producer_id if self._is_used_up else -1,
            is_bumped=True,
            state=TransactionState.COMPLETE_ABORT,
            updated_ms=now_ms,
        )
        image = _rotated(image)
        self._persist(image, AnswerProducer(ticket=request.ticket, producer=_successor(image)), actions)

    def _end(self, request: End, actions: list[Action]) -> None:
        match self.state, request.is_commit:
            case (
                (TransactionState.COMPLETE_COMMIT, True)
                | (TransactionState.COMPLETE_ABORT, False)
                | (TransactionState.EMPTY, _)
            ):
                # A repeat whose answer was lost, or the end of a transaction in which nothing happened: Flink
                # sends the latter when it recovers, and a failure there would fail the job.
                actions.append(Answer(ticket=request.ticket))
            case _:
                actions.append(Answer(ticket=request.ticket, error=TransactionError.INVALID_TXN_STATE))

    # -- durability

    def _persist(self, image: TransactionImage, answer: Action | None, actions: list[Action]) -> None:
        assert self._pending is None, "two images on their way"
        self._pending = image
        self._pending_answer = answer
        actions.append(Persist(image=image))

    def _persisted(self, now_ms: int, actions: list[Action]) -> None:
        if self._is_forgetting:
            self._is_forgetting = False
            self.image = msgspec.structs.replace(self.image, state=TransactionState.DEAD)
        elif self._pending is not None:
            self.image = self._pending
            self._pending = None
        else:
            return
        if self._pending_answer is not None:
            actions.append(self._pending_answer)
            self._pending_answer = None
        if self.state in PREPARED:
            actions.append(self._markers())
        self._serve_waiting(now_ms, actions)

    def _persist_failed(self, now_ms: int, actions: list[Action]) -> None:
        error = TransactionError.COORDINATOR_NOT_AVAILABLE
        match self._pending_answer:
            case AnswerProducer(ticket=ticket):
                actions.append(AnswerProducer(ticket=ticket, error=error))
            case Answer(ticket=ticket):
                actions.append(Answer(ticket=ticket, error=error))
        self._pending = None
        self._pending_answer = None
        self._is_forgetting = False
        self._retry_ms = now_ms + RETRY_MS
        if self.state in PREPARED:
            # Markers are there, the completion is not: writing both again is harmless.
            actions.append(self._markers())
        self._serve_waiting(now_ms, actions)

    def _markers(self) -> WriteMarkers:
        image = self.image
        return WriteMarkers(
            producer=Identity(producer_id=image.producer_id, epoch=image.epoch),
            is_commit=image.state is TransactionState.PREPARE_COMMIT,
            partitions=image.partitions,
        )

    def _markers_written(self, now_ms: int, actions: list[Action]) -> None:
        if self.state not in PREPARED or self._pending is not None:
            return
        complete = msgspec.structs.replace(
            _rotated(self.image),
            state=_COMPLETE[self.state],
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=now_ms,
        )
        self._persist(complete, None, actions)

    def _serve_waiting(self, now_ms: int, actions: list[Action]) -> None:
        while self._waiting and not self.is_busy:
            self._serve(self._waiting.popleft().request, now_ms, actions)

    # -- time

    def _tick(self, now_ms: int, actions: list[Action]) -> None:
        while self._waiting and self._waiting[0].until_ms <= now_ms:
            actions.append(_refusal(self._waiting.popleft().request, TransactionError.CONCURRENT_TRANSACTIONS))
        if self.is_busy or now_ms < self._retry_ms:
            return
        image = self.image
        if image.state is TransactionState.DEAD:
            return
        if image.state is TransactionState.ONGOING:
            if image.started_ms + image.timeout_ms <= now_ms:
                actions.append(TimedOut(producer=Identity(producer_id=image.producer_id, epoch=image.epoch)))
                self._fence(now_ms, actions)
        elif image.updated_ms + self.settings.expiration_ms <= now_ms:
            self._is_forgetting = True
            actions.append(Persist(image=None))

    def check_invariants(self) -> None:
        image = self.image
        has_partitions = image.state in (TransactionState.ONGOING, *PREPARED)
        assert has_partitions or not image.partitions, "partitions outside a transaction"
        assert (image.started_ms >= 0) == has_partitions, "a start without a transaction, or none with one"
        assert self._pending is None or not self._is_forgetting
        assert self._pending is not None or self._pending_answer is None, "an answer waits for nothing"
        assert self.is_busy or not self._waiting, "a request waits for nothing"
        assert -1 <= image.epoch <= EPOCH_MAX
        assert image.next_producer_id < 0 or (image.state in PREPARED and image.epoch == EPOCH_MAX), (
            "a successor too soon"
        )


def new_transaction(
    producer_id: int, *, timeout_ms: int, now_ms: int, settings: TransactionSettings
) -> TransactionMachine:
    image = TransactionImage(producer_id=producer_id, timeout_ms=timeout_ms, updated_ms=now_ms)
    return TransactionMachine(settings, image)


def _refusal(request: AddPartitions | End, error: TransactionError) -> Action:
    if isinstance(request, End) and request.is_bumping:
        return AnswerProducer(ticket=request.ticket, error=error)
    return Answer(ticket=request.ticket, error=error)


def _successor(image: TransactionImage) -> Identity:
    """Who the producer is in its next transaction."""
    if image.next_producer_id >= 0:
        return Identity(producer_id=image.next_producer_id, epoch=0)
    return Identity(producer_id=image.producer_id, epoch=image.epoch)


def _rotated(image: TransactionImage) -> TransactionImage:
    """When all is marked: the name goes on under the next producer id, where there is one."""
    if image.next_producer_id < 0:
        return image
    return msgspec.structs.replace(
        image,
        producer_id=image.next_producer_id,
        epoch=0,
        previous_producer_id=image.producer_id,
        next_producer_id=-1,
    )
