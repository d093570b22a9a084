"""Long work as a thing of its own: it has a number, progress, and a result or a reason, and it can be cancelled.

Operations live in memory and end with the node. What they do is safe to begin again; nothing depends on one being remembered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from headrace.admin.rights import CLUSTER_NAME, Operation, Resource
from headrace.chance import SYSTEM_CHANCE
from headrace.clock import Clock
from headrace.errors import Conflict, HeadraceError, Overloaded, ResourceNotFound
from headrace.telemetry.logging import get_logger

KEPT_MAX: Final = 200
"""Finished operations that can still be asked for."""
RUNNING_MAX: Final = 8

log = get_logger(__name__)


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """One operation as it stands now."""

    id: str
    kind: str
    target: str
    """What it works on, in words."""
    state: str
    """`running`, `done`, `failed` or `cancelled`."""
    done: int = 0
    total: int = 0
    unit: str = "bytes"
    started_ms: int
    ended_ms: int | None = None
    message: str | None = None
    """Why it failed."""
    result: Any = None  # Any: what the work gave, as JSON has it
    """In lists there is none."""
    can_resume: bool = False
    """Whether it was cancelled, or has failed, and can go on where it was."""
    author: str = ""
    """Who started it, where that is kept."""


class Progress:
    """Handed to the work, which moves it from the event loop."""

    def __init__(self) -> None:
        self.done = 0
        self.total = 0
        self.unit = "bytes"
        self.partial: object = None
        """What there is of the result already."""
        self.state: object = None
        """For work that can go on where it was: how far it has come. Kept until it is done."""


Work = Callable[[Progress], Awaitable[object]]
"""Gives the result. One that is JSON already (`msgspec.Raw`) stays so until somebody asks for it."""
Sees = Callable[[Operation, Resource, str], bool]


class Sight(NamedTuple):
    """What somebody must be allowed in order to see an operation: its target and result may tell of records."""

    operation: Operation = Operation.DESCRIBE
    resource: Resource = Resource.CLUSTER
    name: str = CLUSTER_NAME


class _Operation:
    def __init__(
        self, kind: str, target: str, started_ms: int, work: Work, *, is_resumable: bool, sight: Sight, author: str
    ) -> None:
        self.id = SYSTEM_CHANCE.randbytes(8).hex()
        self.kind = kind
        self.target = target
        self.work = work
        self.is_resumable = is_resumable
        self.sight = sight
        self.author = author
        self.started_ms = started_ms
        self.progress = Progress()
        self.state = "running"
        self.ended_ms: int | None = None
        self.message: str | None = None
        self.result: object = None
        self.task: asyncio.Task[None] | None = None

    @property
    def can_resume(self) -> bool:
        return self.is_resumable and self.state in ("cancelled", "failed")

    def view(self, *, with_result: bool = True) -> OperationView:
        result = self.progress.partial if self.result is None else self.result
        return OperationView(
            id=self.id,
            kind=self.kind,
            target=self.target,
            state=self.state,
            done=self.progress.done,
            total=self.progress.total,
            unit=self.progress.unit,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            message=self.message,
            result=_plain(result) if with_result else None,
            can_resume=self.can_resume,
            author=self.author,
        )


class Operations:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, _Operation] = OrderedDict()

    def start(
        self,
        kind: str,
        target: str,
        work: Work,
        *,
        is_resumable: bool = False,
        sight: Sight = Sight(),
        author: str = "",
        kept_max: int = KEPT_MAX,
    ) -> OperationView:
        """`is_resumable`: called again with the same progress, the work goes on where it was. `kept_max`: so many of this kind
        are remembered, for those whose results are large."""
        self._check_room()
        operation = _Operation(
            kind, target, self._clock.now_ms(), work, is_resumable=is_resumable, sight=sight, author=author
        )
        self._known[operation.id] = operation
        self._forget_oldest([each for each in self._known.values() if each.kind == kind], kept_max)
        self._forget_oldest(list(self._known.values()), KEPT_MAX)
        self._begin(operation)
        return operation.view()

    def resume(self, operation_id: str) -> OperationView:
        """Goes on where it was; `Conflict` for one that runs, is done, or cannot."""
        operation = self._find(operation_id)
        if not operation.can_resume:
            raise Conflict(f"operation {operation_id} is {operation.state}, and cannot be resumed")
        self._check_room()
        operation.state, operation.message, operation.ended_ms = "running", None, None
        self._begin(operation)
        return operation.view()

    def _check_room(self) -> None:
        if sum(each.state == "running" for each in self._known.values()) >= RUNNING_MAX:
            raise Overloaded(f"{RUNNING_MAX} operations run already; wait for one, or cancel it")

    def _begin(self, operation: _Operation) -> None:
        operation.task = asyncio.get_running_loop().create_task(self._run(operation))

    async def _run(self, operation: _Operation) -> None:
        try:
            operation.result = await operation.work(operation.progress)
            operation.state = "done"
            operation.progress.state = None
        except asyncio.CancelledError:
            operation.state = "cancelled"
        except HeadraceError as error:
            operation.state, operation.message = "failed", str(error)
        except Exception as error:
            log.exception("operation failed", kind=operation.kind, target=operation.target)
            operation.state, operation.message = "failed", f"unforeseen: {type(error).__name__}"
        operation.ended_ms = self._clock.now_ms()

    def all(self, sees: Sees) -> list[OperationView]:
        """Newest first, and without results: two hundred searches have found a hundred thousand records."""
        return [each.view(with_result=False) for each in reversed(self._known.values()) if sees(*each.sight)]

    def get(self, operation_id: str, sees: Sees) -> OperationView:
        """One that may not be seen looks as if it were not there."""
        operation = self._find(operation_id)
        if not sees(*operation.sight):
            raise _unknown(operation_id)
        return operation.view()

    async def cancel(self, operation_id: str) -> OperationView:
        """Waits until it has ended; one that has ended already stays as it is."""
        operation = self._find(operation_id)
        if operation.task is not None and not operation.task.done():
            operation.task.cancel()
            await asyncio.wait([operation.task])
        if operation.state == "running":
            # Cancelled before its first step: the work has never begun.
            operation.state, operation.ended_ms = "cancelled", self._clock.now_ms()
        return operation.view()

    async def stop(self) -> None:
        for operation_id in list(self._known):
            await self.cancel(operation_id)

    def _find(self, operation_id: str) -> _Operation:
        operation = self._known.get(operation_id)
        if operation is None:
            raise _unknown(operation_id)
        return operation

    def _forget_oldest(self, operations: list[_Operation], kept_max: int) -> None:
        ended = [each for each in operations if each.state != "running"]
        for operation in ended[: max(0, len(operations) - kept_max)]:
            del self._known[operation.id]


def _plain(result: object) -> Any:  # Any: as JSON has it
    return msgspec.json.decode(result) if isinstance(result, msgspec.Raw) else msgspec.to_builtins(result)


def _unknown(operation_id: str) -> ResourceNotFound:
    return ResourceNotFound(f"no operation {operation_id!r}; they are forgotten when the node ends")
