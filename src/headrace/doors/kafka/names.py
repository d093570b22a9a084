"""What a client of this door hears of a topic that is not there."""

from headrace.broker.topic_names import check_kafka_name
from headrace.doors.kafka.errors import code_of
from headrace.errors import InvalidName
from headrace.wire.kafka.error_codes import ErrorCode


def missing_code(name: str) -> ErrorCode:
    """What is wrong with asking for a topic that there is not: its name, if that can never be one."""
    try:
        check_kafka_name(name)
    except InvalidName as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
