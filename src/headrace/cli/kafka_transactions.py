"""Transactions as the command line sees them. No Python client offers these requests, so they are made one by one."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from headrace.clients.kafka import KafkaRequests
from headrace.errors import Rejected, TimedOut, TransactionNotFound
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse

OPEN_STATES: Final = ["Ongoing", "PrepareCommit", "PrepareAbort"]
WAIT_SECONDS_MAX: Final = 10.0
RETRY_SECONDS: Final = 0.05
_ANSWERS: Final = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
_PASSING: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
"""The node has just started, or the last transaction is about to be ended."""
_Answer = TypeVar("_Answer")


class TransactionRow(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    state: str


class TransactionDetail(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: list[str]


class TransactionAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap.partition(",")[0]

    def rows(self, *, only_open: bool) -> list[TransactionRow]:
        request = ListTransactionsRequest(state_filters=OPEN_STATES if only_open else [])
        found = self._ask(
            lambda node: node.call(request, 0, ListTransactionsResponse), lambda answer: answer.error_code
        )
        return [
            TransactionRow(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                state=each.transaction_state,
            )
            for each in found.transaction_states
        ]

    def describe(self, transactional_id: str) -> TransactionDetail:
        request = DescribeTransactionsRequest([transactional_id])
        found = self._ask(
            lambda node: node.call(request, 0, DescribeTransactionsResponse).transaction_states[0],
            lambda state: state.error_code,
        )
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise TransactionNotFound(f"no transactional id {transactional_id!r}")
        return TransactionDetail(
            transactional_id=transactional_id,
            state=found.transaction_state,
            producer_id=found.producer_id,
            epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            started_ms=found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
            partitions=[f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions],
        )

    def abort(self, transactional_id: str) -> None:
        """Take the name as a new producer would: that ends what the old one left open, and fences it."""
        timeout_ms = self.describe(transactional_id).timeout_ms
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self._ask(lambda node: node.call(request, 4, InitProducerIdResponse), lambda answer: answer.error_code)

    def _ask(self, ask: Callable[[KafkaRequests], _Answer], code_of: Callable[[_Answer], int]) -> _Answer:
        """Again while the node says to wait. Raises `Rejected`, or `TimedOut` when it goes on saying so."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with KafkaRequests(self._bootstrap) as node:
            while True:
                answer = ask(node)
                code = ErrorCode(code_of(answer))
                if code in _ANSWERS:
                    return answer
                if code not in _PASSING:
                    raise Rejected(f"the node refused: {code.name}")
                if time.monotonic() > deadline:
                    raise TimedOut(f"the node still says {code.name}; try again in a while")
                time.sleep(RETRY_SECONDS)
