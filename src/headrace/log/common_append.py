"""Fast path of `append`, in C. Without the extension every append takes the Python path.

`append_common(partition, batch, now_ms, waiter)` takes a client's batch into `partition`, lets `waiter` (or nobody) wait for
it, and gives its base offset. None means that this batch needs more thought, or that there is no compiled module: nothing
has changed, and `PartitionLog` does it in Python.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.compiled import compiled

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog
    from headrace.log.wal.writer import Waiter
    from headrace.records.batch import Buffer

    class CountingWaiter(Waiter, Protocol):
        """Waits for several things, and is told how many."""

        def expect_one(self) -> None: ...

    AppendCommon = Callable[[PartitionLog, Buffer, int, CountingWaiter | None], int | None]


def _in_python(*_: Any) -> None:
    """Not here: `PartitionLog` knows all cases."""


_module: Final = compiled("headrace.log._append")

append_common: Final["AppendCommon"] = _module.append if _module is not None else _in_python
append_pointer: Final[object | None] = _module.pointer if _module is not None else None
"""The same for other C modules, where there is one: a capsule, as `kernel.h` describes it."""
