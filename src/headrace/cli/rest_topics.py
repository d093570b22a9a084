"""Topics over the REST API: the port of `administration`, for who has a token and cannot reach the Kafka door."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from headrace.cli.administration import (
    NODES_DEFAULT,
    PartitionState,
    TopicState,
    TopicSummary,
    check_removals,
    no_topic,
)
from headrace.cli.exposure import Exposure
from headrace.cli.rest import RestClient
from headrace.errors import TopicNotFound


class RestTopicAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def create_topic(
        self, name: str, *, partitions: int | None, replication_factor: int | None, config: dict[str, str]
    ) -> None:
        counts = {"partitions": partitions or NODES_DEFAULT, "replication_factor": replication_factor or NODES_DEFAULT}
        self._client.post("topics", body={"name": name, **counts, "config": config})

    def delete_topic(self, name: str) -> None:
        with _named(name):
            self._client.delete("topics", name)

    def add_partitions(self, name: str, total: int) -> None:
        with _named(name):
            self._client.post("topics", name, "partitions", body={"count": total})

    def alter_config(self, name: str, *, changes: Mapping[str, str], removals: Sequence[str]) -> None:
        with _named(name):
            if removals:
                known = self._client.get("topics", name, "configs")["configs"]
                check_removals(removals, (row["name"] for row in known))
            self._client.patch("topics", name, "configs", body={"set": changes, "unset": removals})

    def list_topics(self) -> list[TopicSummary]:
        return [
            TopicSummary(name=row["name"], partitions=row["partitions"], replication_factor=row["replication_factor"])
            for page in self._client.pages("topics", internal="true")
            for row in page["topics"]
        ]

    def describe_topic(self, name: str) -> TopicState:
        with _named(name):
            topic = self._client.get("topics", name)
            rows = [row for page in self._client.pages("topics", name, "partitions") for row in page["partitions"]]
        return TopicState(
            name=name,
            topic_id=_kafka_id(topic["id"]),
            is_internal=topic["is_internal"],
            partitions=[_partition(row) for row in rows],
            config=dict(sorted(topic["config"].items())),
        )

    def exposure(self, name: str, *, admin: str) -> Mapping[tuple[str, int], Exposure]:
        return {
            (row["topic"], row["partition"]): Exposure(row["exposed_bytes"], row["oldest_ms"] or 0)
            for page in self._client.pages("tier", "exposure", filter=f"{name}/")
            for row in page["exposure"]
        }


def _kafka_id(topic_id: str) -> str:
    """As Kafka's client writes it."""
    return b64encode(UUID(topic_id).bytes).decode().rstrip("=")


def _partition(row: Mapping[str, Any]) -> PartitionState:  # Any: JSON
    is_known = row["is_led_here"]
    return PartitionState(
        partition=row["partition"],
        leader=row["leader"],
        replicas=row["replicas"],
        isr=row["isr"],
        log_start=row["log_start"] if is_known else None,
        end=row["high_watermark"] if is_known else None,
    )


@contextmanager
def _named(topic: str) -> Iterator[None]:
    try:
        yield
    except TopicNotFound as error:
        raise no_topic(topic) from error
