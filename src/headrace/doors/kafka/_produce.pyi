from collections.abc import Callable, Sequence

from headrace.broker.produce import Produce
from headrace.broker.topics import Topic
from headrace.doors.connection import FramedConnection
from headrace.records.batch import Buffer

ROWS_MAX: int
SLOTS_MAX: int

class Reply:
    answer: bytes
    topics: Sequence[Topic]
    version: int
    correlation_id: int
    expires_ms: int
    chunks: Sequence[Buffer] | None
    def fill(self, chunks: Sequence[Buffer], /) -> None: ...

class Kernel:
    def __init__(
        self,
        *,
        produce: Produce,
        can_take: Callable[[int], bool],
        now_ms: Callable[[], int] | None,
        append: object,
        append_carefully: Callable[..., bytes],
        fail: Callable[..., None],
    ) -> None: ...
    def take(self, frame: memoryview, connection: FramedConnection, /) -> bool: ...
    def take_all(self, view: memoryview, filled: int, connection: FramedConnection, /) -> int: ...
