"""The command line's transaction requests, to a node that says to wait."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

from headrace.cli import kafka_transactions
from headrace.cli.administration import TransactionRow
from headrace.cli.kafka_transactions import TransactionAdmin
from headrace.errors import Denied, TimedOut
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.list_transactions_response import ListTransactionsResponse, TransactionState
from headrace.wire.kafka.messages.metadata_response import MetadataResponse, MetadataResponseBroker

LOADING = ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
LOADED = ListTransactionsResponse(
    transaction_states=[TransactionState(transactional_id="a", producer_id=7, transaction_state="Ongoing")]
)
Answering = Callable[[Sequence[Any]], TransactionAdmin]


class Script:
    """Answers one after the other; the last one for good."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)

    def __enter__(self) -> "Script":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def call(self, request: object, version: int, answer: type) -> object:
        if answer is MetadataResponse:
            return MetadataResponse(brokers=[MetadataResponseBroker(1, "localhost", 1)])
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """An admin whose node answers as told. A pause takes no time but is over."""
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    def make(answers: Sequence[Any]) -> TransactionAdmin:
        monkeypatch.setattr(kafka_transactions, "KafkaRequests", lambda bootstrap: Script(answers))
        return TransactionAdmin("localhost:1")

    monkeypatch.setattr(kafka_transactions, "time", SimpleNamespace(sleep=pause, monotonic=lambda: now))
    return make


def test_a_list_waits_until_the_coordinators_are_loaded(answering: Answering) -> None:
    rows = answering([LOADING, LOADING, LOADED]).rows(only_open=True)
    assert rows == [TransactionRow(transactional_id="a", producer_id=7, state="Ongoing")]


def test_who_waits_in_vain_is_told_what_for(answering: Answering) -> None:
    with pytest.raises(TimedOut, match="COORDINATOR_LOAD_IN_PROGRESS"):
        answering([LOADING]).rows(only_open=False)


def test_a_refusal_is_not_an_empty_list(answering: Answering) -> None:
    refused = ListTransactionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(Denied, match="not allowed"):
        answering([refused]).rows(only_open=False)
