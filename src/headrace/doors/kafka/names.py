"""Topic names as Kafka has them: its own limit, stricter than the engine's (C11), and what a client hears of a missing one."""

from typing import Final

from headrace.broker.topics import Topics, check_name
from headrace.doors.kafka.errors import code_of
from headrace.errors import InvalidName
from headrace.wire.kafka.error_codes import ErrorCode

KAFKA_NAME_LENGTH_MAX: Final = 249


def check_kafka_name(name: str) -> None:
    check_name(name)
    if len(name) > KAFKA_NAME_LENGTH_MAX:
        raise InvalidName(f"topic name of {len(name)} characters, Kafka allows {KAFKA_NAME_LENGTH_MAX}")


def check_new_name(name: str, topics: Topics) -> None:
    """May a client of this door create a topic of this name? Kafka refuses `a.b` beside `a_b`: their metrics collide."""
    check_kafka_name(name)
    if topics.find(name) is None and (other := topics.alike(name)) is not None:
        raise InvalidName(f"Topic '{name}' collides with existing topic: {other}")


def missing_code(name: str) -> ErrorCode:
    """What is wrong with asking for a topic that there is not: its name, if that can never be one."""
    try:
        check_kafka_name(name)
    except InvalidName as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
