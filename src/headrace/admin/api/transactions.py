"""Transactions: which are open, what they have written to, and ending one whose producer is gone."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import Done
from headrace.admin.rights import Operation, Resource
from headrace.broker.transactions.events import TransactionError, TransactionImage, TransactionState
from headrace.errors import Concurrent, Conflict, TransactionNotFound

TransactionalId = Annotated[str, Meta(min_length=1, max_length=4096)]


class TransactionRow(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    is_open: bool
    """Holds back readers of committed records."""
    timeout_ms: int
    started_ms: int | None
    partitions: list[str]


class ListTransactions(PageRequest, frozen=True):
    open: bool = False
    """Only those without an outcome."""


class TransactionList(msgspec.Struct, frozen=True, kw_only=True):
    transactions: list[TransactionRow]
    next_page_token: str = ""
    total: int


class NamedTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    transactional_id: TransactionalId


class AbortTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    transactional_id: TransactionalId
    dry_run: bool = False


_OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)


async def list_transactions(request: ListTransactions, call: Call) -> TransactionList:
    known = [
        (name, image)
        async for name, image in call.turns.over(call.broker.transactions.all().items())
        if (not request.open or image.state in _OPEN) and call.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
    ]
    page = await page_of(
        known,
        request,
        turns=call.turns,
        name=lambda each: each[0],
        orders={"state": lambda each: each[1].state.name},
    )
    return TransactionList(
        transactions=[_row(*each) for each in page.items], next_page_token=page.next_token, total=page.total
    )


async def describe_transaction(request: NamedTransaction, call: Call) -> TransactionRow:
    return _row(request.transactional_id, _find(request.transactional_id, call))


async def abort_transaction(request: AbortTransaction, call: Call) -> Done:
    """Takes the name as a new producer would: that ends what the old one left open, and fences it."""
    image = _find(request.transactional_id, call)
    if not request.dry_run:
        reply = await call.broker.transactions.init(request.transactional_id, timeout_ms=image.timeout_ms)
        if reply.error in (TransactionError.CONCURRENT_TRANSACTIONS, TransactionError.COORDINATOR_NOT_AVAILABLE):
            raise Concurrent(f"{request.transactional_id!r} is being ended; look again in a moment")
        if reply.error is not TransactionError.NONE:
            raise Conflict(f"{request.transactional_id!r}: {reply.error.name}")
    return Done(message=f"{request.transactional_id} aborted; its producer is fenced", is_dry_run=request.dry_run)


def _find(transactional_id: str, call: Call) -> TransactionImage:
    image = call.broker.transactions.find(transactional_id)
    if image is None:
        raise TransactionNotFound(f"no transactional id {transactional_id!r}")
    return image


def _row(transactional_id: str, image: TransactionImage) -> TransactionRow:
    return TransactionRow(
        transactional_id=transactional_id,
        producer_id=image.producer_id,
        epoch=image.epoch,
        state=image.state.name,
        is_open=image.state in _OPEN,
        timeout_ms=image.timeout_ms,
        started_ms=image.started_ms if image.started_ms >= 0 else None,
        partitions=sorted(f"{each.topic}-{each.partition}" for each in image.partitions),
    )
