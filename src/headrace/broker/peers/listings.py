"""Lists that several brokers have parts of: groups and transactions. Whoever shows one asks the others, once and not for long.

A broker that does not answer in time is named instead, and so is one with more rows than anybody wants to be sent: the list says
what it leaves out.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.broker.groups.service import Groups
from headrace.broker.groups.standings import NOWHERE, Standings
from headrace.broker.peers import calls
from headrace.broker.peers.calls import (
    GroupFacts,
    GroupsListed,
    ListGroups,
    ListTransactions,
    PeerCall,
    Peers,
    TransactionFacts,
    TransactionsListed,
)
from headrace.broker.slices import Turns
from headrace.broker.transactions.events import TransactionImage
from headrace.broker.transactions.service import Transactions
from headrace.errors import HeadraceError
from headrace.telemetry.logging import get_logger

ROWS_MAX: Final = 20_000
"""Of one broker: some two megabytes."""
PATIENCE_S: Final = 2.0
"""A page is not worth more: a broker that is paused or cut off is named instead."""

R = TypeVar("R", bound=PeerCall)
T = TypeVar("T")

log = get_logger(__name__)


class Gathered(NamedTuple, Generic[T]):
    """Rows of other brokers, and those of them that have more."""

    rows: list[T]
    left_out: list[str]


async def groups_of(peers: Peers | None, brokers: Iterable[str]) -> Gathered[GroupFacts]:
    found: Gathered[GroupFacts] = Gathered([], [])
    for broker, answer in (await _answers(peers, brokers, ListGroups(ROWS_MAX), GroupsListed)).items():
        if answer is not None:
            found.rows.extend(answer.groups)
        if answer is None or not answer.is_complete:
            found.left_out.append(broker)
    return found


async def transactions_of(peers: Peers | None, brokers: Iterable[str]) -> Gathered[TransactionFacts]:
    found: Gathered[TransactionFacts] = Gathered([], [])
    for broker, answer in (await _answers(peers, brokers, ListTransactions(ROWS_MAX), TransactionsListed)).items():
        if answer is not None:
            found.rows.extend(answer.transactions)
        if answer is None or not answer.is_complete:
            found.left_out.append(broker)
    return found


async def _answers(peers: Peers | None, brokers: Iterable[str], call: PeerCall, answer: type[R]) -> dict[str, R | None]:
    """Of each broker, all asked at the same time; None of one that does not answer."""
    names = sorted(brokers)

    async def ask(broker: str) -> R | None:
        if peers is None:
            return None
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await calls.ask(peers, broker, call, answer)
        except (HeadraceError, TimeoutError) as error:
            log.info("left out of a list", broker=broker, reason=str(error) or "no answer in time")
            return None

    return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


# -- what the others are answered --------------------------------------------------------------------------------------


async def listed_groups(groups: Groups, standings: Standings, limit: int) -> GroupsListed:
    turns = Turns()
    names = groups.names()
    known = await standings.all(turns)
    rows = []
    async for name in turns.over(names[:limit]):
        listing, group = groups.listing(name), groups.find(name)
        if listing is None or group is None:
            continue
        standing = known.get(name, NOWHERE)
        rows.append(
            GroupFacts(name, listing.kind, listing.state, len(group.members), len(standing.topics), standing.lag)
        )
    return GroupsListed(rows, len(names) <= limit)


async def listed_transactions(transactions: Transactions, limit: int) -> TransactionsListed:
    turns = Turns()
    images = list(transactions.all().items())
    rows = [transaction_facts(name, image) async for name, image in turns.over(images[:limit])]
    return TransactionsListed(rows, len(images) <= limit)


def transaction_facts(name: str, image: TransactionImage) -> TransactionFacts:
    return TransactionFacts(
        name,
        image.producer_id,
        image.epoch,
        image.state.name,
        image.timeout_ms,
        image.started_ms,
        sorted((each.topic, each.partition) for each in image.partitions),
    )
