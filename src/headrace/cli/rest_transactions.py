"""Transactions over the REST API: the port of `administration`, for who has a token and cannot reach the Kafka door."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.administration import (
    ABORT_SECONDS_MAX,
    RETRY_SECONDS,
    TransactionDetail,
    TransactionRow,
    no_transaction,
)
from headrace.cli.rest import RestClient
from headrace.errors import Concurrent, TimedOut, TransactionNotFound


class RestTransactionAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def rows(self, *, only_open: bool) -> list[TransactionRow]:
        return [
            TransactionRow(
                transactional_id=row["transactional_id"], producer_id=row["producer_id"], state=_state(row["state"])
            )
            for page in self._client.pages("transactions", open=str(only_open).lower())
            for row in page["transactions"]
        ]

    def describe(self, transactional_id: str) -> TransactionDetail:
        with _named(transactional_id):
            found = self._client.get("transactions", transactional_id)
        return TransactionDetail(
            transactional_id=transactional_id,
            state=_state(found["state"]),
            producer_id=found["producer_id"],
            epoch=found["epoch"],
            timeout_ms=found["timeout_ms"],
            started_ms=found["started_ms"],
            partitions=found["partitions"],
        )

    def abort(self, transactional_id: str) -> None:
        deadline = time.monotonic() + ABORT_SECONDS_MAX
        with _named(transactional_id):
            while True:
                try:
                    self._client.post("transactions", transactional_id, "abort", body={})
                except Concurrent as error:
                    if time.monotonic() > deadline:
                        raise TimedOut(f"{error}; try again in a while") from error
                    time.sleep(RETRY_SECONDS)
                else:
                    return


def _state(word: str) -> str:
    """`PREPARE_COMMIT` as Kafka's protocol spells it, `PrepareCommit`."""
    return "".join(part.capitalize() for part in word.split("_"))


@contextmanager
def _named(transactional_id: str) -> Iterator[None]:
    try:
        yield
    except TransactionNotFound as error:
        raise no_transaction(transactional_id) from error
