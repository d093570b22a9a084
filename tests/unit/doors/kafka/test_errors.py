"""Every error of ours has a code of Kafka's, and the codes say whether trying again makes sense."""

from collections.abc import Iterator

import pytest

from headrace import errors
from headrace.doors.kafka.errors import code_of
from headrace.wire.kafka.error_codes import ErrorCode

RETRIABLE = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""As Kafka's clients have it."""


def all_kinds(kind: type[errors.HeadraceError]) -> Iterator[type[errors.HeadraceError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == "headrace.errors":
            yield from all_kinds(child)


KINDS = sorted(set(all_kinds(errors.HeadraceError)), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind: type[errors.HeadraceError]) -> None:
    code = code_of(kind("x"))
    assert code is not ErrorCode.NONE
    if kind is not errors.HeadraceError:
        assert code is not ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "kind", [each for each in KINDS if issubclass(each, errors.Unavailable)], ids=lambda k: k.__name__
)
def test_wrong_moment_is_retriable(kind: type[errors.HeadraceError]) -> None:
    assert code_of(kind("x")) in RETRIABLE


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.TopicNotFound, 3),
        (errors.PartitionNotFound, 3),
        (errors.OffsetOutOfRange, 1),
        (errors.CorruptBatch, 2),
        (errors.NotLeader, 6),
        (errors.TimedOut, 7),
        (errors.TooLarge, 10),
        (errors.InvalidName, 17),
        (errors.InvalidTimestamp, 32),
        (errors.UnsupportedOperation, 35),
        (errors.AlreadyExists, 36),
        (errors.OutOfOrderSequence, 45),
        (errors.ProducerFenced, 47),
        (errors.StorageFull, 56),
        (errors.StaleEpoch, 74),
        (errors.UnknownEpoch, 75),
        (errors.UnsupportedCompression, 76),
        (errors.InvalidRecords, 87),
    ],
)
def test_codes_are_kafkas(kind: type[errors.HeadraceError], code: int) -> None:
    assert code_of(kind("x")) == code


def test_what_nobody_foresaw_is_an_unknown_server_error() -> None:
    assert code_of(RuntimeError("x")) == ErrorCode.UNKNOWN_SERVER_ERROR
