"""Configs of topics and brokers as the command line sees them, through confluent-kafka."""

from typing import Final

import msgspec
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.cli.kafka import TIMEOUT_SECONDS, client_settings, result_of
from headrace.errors import NotFound, TopicNotFound

_KINDS: Final = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}
_SOURCES: Final = {1: "topic", 4: "broker", 5: "default"}


class ConfigRow(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str | None
    source: str


class ConfigAdmin:
    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient(client_settings(bootstrap))

    def describe(self, kind: str, name: str) -> list[ConfigRow]:
        if kind == "broker":
            self._require_broker(name)
        resource = ConfigResource(_KINDS[kind], name)
        (future,) = self._client.describe_configs([resource], request_timeout=TIMEOUT_SECONDS).values()
        try:
            found = result_of(future)
        except TopicNotFound as error:
            raise TopicNotFound(f"no topic {name!r}") from error
        return [
            ConfigRow(key=key, value=entry.value, source=_SOURCES.get(entry.source, "other"))
            for key, entry in sorted(found.items())
        ]

    def _require_broker(self, name: str) -> None:
        """The client asks the broker itself, and would wait for one that there is not."""
        known = {str(node.id) for node in result_of(self._client.describe_cluster()).nodes}
        if name not in known:
            raise NotFound(f"no broker {name!r}; there is {', '.join(sorted(known))}")
