"""Names of new topics as Kafka allows them: its own limit, stricter than the engine's (C11), and no two that look alike."""

from typing import Final

from headrace.broker.topics import Topics, check_name
from headrace.errors import InvalidName

KAFKA_NAME_LENGTH_MAX: Final = 249


def check_kafka_name(name: str) -> None:
    check_name(name)
    if len(name) > KAFKA_NAME_LENGTH_MAX:
        raise InvalidName(f"topic name of {len(name)} characters, Kafka allows {KAFKA_NAME_LENGTH_MAX}")


def check_new_name(name: str, topics: Topics) -> None:
    """May a client create a topic of this name? Kafka refuses `a.b` beside `a_b`: their metrics collide."""
    check_kafka_name(name)
    if topics.find(name) is None and (other := topics.alike(name)) is not None:
        raise InvalidName(f"Topic '{name}' collides with existing topic: {other}")
