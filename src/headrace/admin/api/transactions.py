"""Transactions: which are open, what they have written to, and ending one whose producer is gone."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.elsewhere import OtherBroker, shown, with_other_transactions
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import Done
from headrace.admin.rights import Operation, Resource
from headrace.broker.peers.calls import TransactionFacts
from headrace.broker.peers.listings import Gathered, transaction_facts, transactions_of
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
    other_brokers: list[OtherBroker] = []
    """Brokers that coordinate transactions which are not in this list: they did not answer in time, or have too many."""


class NamedTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    transactional_id: TransactionalId


class AbortTransaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    transactional_id: TransactionalId
    dry_run: bool = False


_OPEN = frozenset(
    each.name for each in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)
)


async def list_transactions(request: ListTransactions, call: Call) -> TransactionList:
    """Of all brokers. One that does not answer in time is among `other_brokers`, and its transactions are not in the list."""
    others = with_other_transactions(call)
    elsewhere = (
        await transactions_of(call.broker.forwarding.peers, others) if others else Gathered[TransactionFacts]([], [])
    )
    own = call.broker.transactions.all()
    known = {each.transactional_id: each for each in elsewhere.rows}
    async for name, image in call.turns.over(own.items()):
        known[name] = transaction_facts(name, image)
    visible = [
        each
        async for each in call.turns.over(known.values())
        if (not request.open or each.state in _OPEN)
        and call.sees(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each.transactional_id)
    ]
    page = await page_of(
        visible,
        request,
        turns=call.turns,
        name=lambda each: each.transactional_id,
        orders={"state": lambda each: each.state},
    )
    return TransactionList(
        transactions=[_row(each) for each in page.items],
        next_page_token=page.next_token,
        total=page.total,
        other_brokers=shown(elsewhere.left_out, call),
    )


async def describe_transaction(request: NamedTransaction, call: Call) -> TransactionRow:
    return _row(transaction_facts(request.transactional_id, _find(request.transactional_id, call)))


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


def _row(facts: TransactionFacts) -> TransactionRow:
    return TransactionRow(
        transactional_id=facts.transactional_id,
        producer_id=facts.producer_id,
        epoch=facts.epoch,
        state=facts.state,
        is_open=facts.state in _OPEN,
        timeout_ms=facts.timeout_ms,
        started_ms=facts.started_ms if facts.started_ms >= 0 else None,
        partitions=[f"{topic}-{partition}" for topic, partition in facts.places],
    )
