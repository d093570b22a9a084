"""What the handlers of groups and transactions share: our answers in Kafka's numbers, and answers that come later."""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from headrace.broker.deferred import Deferred
from headrace.broker.groups.outcome import GroupError
from headrace.broker.transactions.events import TransactionError
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.session import Session
from headrace.errors import CoordinatorLoading, Elsewhere, Fault, HeadraceError, TooLarge, Unavailable
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Name = TypeVar("Name", str, bytes)

GROUP_ID_LENGTH_MAX: Final = 32_767
"""What the int16 length of a legacy string can carry."""


def group_code(error: GroupError) -> ErrorCode:
    return ErrorCode[error.name]


def transaction_code(error: TransactionError, *, knows_fencing: bool) -> ErrorCode:
    """PRODUCER_FENCED is fatal to clients that know it; older versions hear what they understand (KIP-588)."""
    if error is TransactionError.PRODUCER_FENCED and not knows_fencing:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode[error.name]


def coordinator_code(error: HeadraceError) -> ErrorCode:
    """A coordinator that could not read or write its log: the client waits, or finds it again, and repeats."""
    if isinstance(error, TooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if isinstance(error, Elsewhere):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, CoordinatorLoading):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if isinstance(error, Unavailable | Fault):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code_of(error)


def is_valid_group(group_id: str) -> bool:
    return 0 < len(group_id) <= GROUP_ID_LENGTH_MAX


def respond(
    ask: Callable[[], Deferred[T]], answer: Callable[[T], M], refuse: Callable[[ErrorCode], M]
) -> Message | Deferred[Message]:
    """Ask the coordinator: the response that `answer` makes of the result, or `refuse` of its failure."""
    try:
        deferred = ask()
    except HeadraceError as error:
        return refuse(coordinator_code(error))
    response: Deferred[Message] = Deferred()

    def settled(done: Deferred[T]) -> None:
        try:
            response.resolve(answer(done.result()))
        except HeadraceError as error:
            response.resolve(refuse(coordinator_code(error)))

    deferred.then(settled)
    return response


def by_topic(places: Iterable[tuple[Name, int]]) -> dict[Name, list[int]]:
    """The partitions of each topic, in order; topics by name or by id."""
    grouped: dict[Name, list[int]] = {}
    for topic, index in sorted(places):
        grouped.setdefault(topic, []).append(index)
    return grouped


def client_host(session: Session) -> str:
    """As Kafka shows it: a slash and the address without its port."""
    return "/" + session.peer.rpartition(":")[0].strip("[]")
