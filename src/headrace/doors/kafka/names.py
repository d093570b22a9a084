"""Kafka's own limit on topic names, stricter than the engine's (C11)."""

from typing import Final

from headrace.broker.topics import check_name
from headrace.errors import InvalidName

KAFKA_NAME_LENGTH_MAX: Final = 249


def check_kafka_name(name: str) -> None:
    check_name(name)
    if len(name) > KAFKA_NAME_LENGTH_MAX:
        raise InvalidName(f"topic name of {len(name)} characters, Kafka allows {KAFKA_NAME_LENGTH_MAX}")
