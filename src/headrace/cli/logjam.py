"""Sending to and listening at the Logjam door.

There a topic is an application and its environment (`shop-production`), and a record's key is its routing topic
(`logs.page`). Nobody is told offsets, and what is published live cannot be read again.
"""

from collections.abc import Iterator
from typing import Final

from headrace.cli.doors import Outgoing, Receipts, Received, Start
from headrace.cli.presence import require_node
from headrace.clients.logjam import BadRequest, LogjamClient, LogjamSubscriber
from headrace.errors import Invalid

ROUTING_DEFAULT: Final = b"logs"
POLL_MS: Final = 500


class LogjamWriter:
    def __init__(self, address: str) -> None:
        self._client = LogjamClient(f"tcp://{address}")
        self.receipts = Receipts()

    def send(self, topic: str, record: Outgoing) -> None:
        if record.headers:
            raise Invalid("the logjam door carries no headers; use --door kafka")
        if record.partition is not None:
            raise Invalid("the logjam door chooses partitions itself")
        routing = (record.key or ROUTING_DEFAULT).decode()
        try:
            self._client.request(topic, routing, record.value or b"")
        except BadRequest as error:
            raise Invalid(
                f"the logjam door refuses {routing!r} to {topic!r} ({error}): "
                "topics are <application>-<environment>, keys begin with logs, javascript, events, frontend or mobile"
            ) from error
        self.receipts.count += 1

    def pause(self) -> None:
        """Every record is asked for by itself."""

    def finish(self) -> None:
        self._client.close()


class LogjamReader:
    def __init__(self, address: str, *, group: str | None, start: Start) -> None:
        if group is not None or start.offset is not None or start.is_beginning:
            raise Invalid(
                "the logjam door publishes what comes next, to everybody; read older records with --door kafka"
            )
        # A subscriber of ZeroMQ's would wait for ever, and silently.
        require_node(address)
        self._address = address
        self._subscriber: LogjamSubscriber | None = None

    def read(self, topic: str, *, partition: int | None, is_following: bool) -> Iterator[Received]:
        self._subscriber = LogjamSubscriber(f"tcp://{self._address}", app_env_prefix=topic)
        while True:
            message = self._subscriber.receive(timeout_ms=POLL_MS)
            if message is not None:
                yield Received(
                    topic=message.app_env.decode(),
                    partition=-1,
                    offset=message.meta.sequence,
                    timestamp_ms=message.meta.created_ms,
                    key=message.topic,
                    value=message.body,
                )
            elif not is_following:
                return

    def close(self) -> None:
        if self._subscriber is not None:
            self._subscriber.close()
