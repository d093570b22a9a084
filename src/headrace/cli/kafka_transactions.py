"""Transactions as the command line sees them. No Python client offers these requests, so they are made one by one."""

import contextlib
import time
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.cli.administration import (
    ABORT_SECONDS_MAX,
    NOT_ALLOWED,
    RETRY_SECONDS,
    TransactionDetail,
    TransactionRow,
    no_transaction,
)
from headrace.clients.kafka import KafkaRequests
from headrace.errors import Denied, Rejected, TimedOut, Unavailable
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.messages.describe_transactions_response import DescribeTransactionsResponse
from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse
from headrace.wire.kafka.messages.metadata_request import MetadataRequest
from headrace.wire.kafka.messages.metadata_response import MetadataResponse

OPEN_STATES: Final = ["Ongoing", "PrepareCommit", "PrepareAbort"]
_ANSWERS: Final = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
_PASSING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""The node has just started, another is about to take over, or the last transaction is about to be ended."""
_DENIALS: Final = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_TRANSACTION: Final = 1
"""`key_type` of FindCoordinator."""
_Answer = TypeVar("_Answer")


class TransactionAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [each.strip() for each in bootstrap.split(",")]

    def rows(self, *, only_open: bool) -> list[TransactionRow]:
        """Of every broker: each knows the transactions that it coordinates, and no others."""
        request = ListTransactionsRequest(state_filters=OPEN_STATES if only_open else [])
        found: dict[str, TransactionRow] = {}
        for address in self._brokers():
            answer = _ask(
                address, lambda node: node.call(request, 0, ListTransactionsResponse), lambda answer: answer.error_code
            )
            for each in answer.transaction_states:
                found[each.transactional_id] = TransactionRow(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.transaction_state,
                )
        return [row for _, row in sorted(found.items())]

    def describe(self, transactional_id: str) -> TransactionDetail:
        request = DescribeTransactionsRequest([transactional_id])
        found = _ask(
            self._coordinator(transactional_id),
            lambda node: node.call(request, 0, DescribeTransactionsResponse).transaction_states[0],
            lambda state: state.error_code,
        )
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise no_transaction(transactional_id)
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
        timeout_ms = self.describe(transactional_id).timeout_ms
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        _ask(
            self._coordinator(transactional_id),
            lambda node: node.call(request, 4, InitProducerIdResponse),
            lambda answer: answer.error_code,
        )

    def _brokers(self) -> list[str]:
        with self._any_node() as node:
            found = node.call(MetadataRequest(topics=[]), 9, MetadataResponse)
        return [f"{each.host}:{each.port}" for each in found.brokers]

    def _coordinator(self, transactional_id: str) -> str:
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
        with self._any_node() as node:
            found = _patiently(
                node, lambda node: node.call(request, 3, FindCoordinatorResponse), lambda answer: answer.error_code
            )
        return f"{found.host}:{found.port}"

    def _any_node(self) -> KafkaRequests:
        """The first of those named that is there."""
        *others, last = self._bootstrap
        for address in others:
            with contextlib.suppress(Unavailable):
                return KafkaRequests(address)
        return KafkaRequests(last)


def _ask(address: str, ask: Callable[[KafkaRequests], _Answer], code_of: Callable[[_Answer], int]) -> _Answer:
    with KafkaRequests(address) as node:
        return _patiently(node, ask, code_of)


def _patiently(
    node: KafkaRequests, ask: Callable[[KafkaRequests], _Answer], code_of: Callable[[_Answer], int]
) -> _Answer:
    """Again while the node says to wait. Raises `Rejected`, or `TimedOut` when it goes on saying so."""
    deadline = time.monotonic() + ABORT_SECONDS_MAX
    while True:
        answer = ask(node)
        code = ErrorCode(code_of(answer))
        if code in _ANSWERS:
            return answer
        if code not in _PASSING:
            raise Denied(NOT_ALLOWED) if code in _DENIALS else Rejected(f"the node refused: {code.name}")
        if time.monotonic() > deadline:
            raise TimedOut(f"the node still says {code.name}; try again in a while")
        time.sleep(RETRY_SECONDS)
