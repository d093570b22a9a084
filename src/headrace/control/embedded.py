"""The metastore of a single node: state in memory, one SQLite file behind it, one writer thread.

The event loop owns the keyspace and decides, a step at a time; the thread only commits. Commands that arrive while a
commit runs wait, are evaluated together in the order of their calls, and ride on the next commit. A caller resumes, and
readers and watchers see the change, only when that commit is on disk.

Fail-stop: after one failed commit nothing more is accepted. What the file holds is found out by opening it again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace.clock import Clock, SystemClock
from headrace.control.history import History
from headrace.control.keyspace import STEP_SIZE, Draft, Keyspace, Steps
from headrace.control.metastore import (
    PAGE_KEYS,
    Changes,
    Compare,
    KeyRange,
    KeyValue,
    Lease,
    LeaseId,
    Op,
    RangeResult,
    TxnLimits,
    TxnResult,
    check_lease_time,
    check_size,
)
from headrace.control.sqlite_file import IN_MEMORY, SqliteFile
from headrace.errors import (
    Fault,
    HeadraceError,
    LeaseNotFound,
    NotReady,
    Overloaded,
    StorageFailed,
)

TXN_LIMITS: Final = TxnLimits(ops_max=100_000, bytes_max=256 * 1024 * 1024)
"""Ten thousand partitions change at once, with a few operations each; more is a caller's mistake."""

COMMANDS_WAITING_MAX: Final = 10_000
"""Callers waiting for a commit. A disk that slow needs callers that stop, not a longer queue."""

# The result's type is that of the command's own method, which `_submit` cannot name.
_Command = Callable[[Draft], Steps[Any]]
_Waiter = tuple[_Command, asyncio.Future[Any]]
_Outcome = tuple[asyncio.Future[Any], Any]


class EmbeddedMetastore:
    """Create with `open`, on the loop that will use it; `close` it there."""

    def __init__(self, file: SqliteFile, keyspace: Keyspace, *, writer: ThreadPoolExecutor, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = file
        self._keyspace = keyspace
        self._writer = writer
        self._clock = clock
        self._history = History(keyspace.revision)
        self._waiting: deque[_Waiter] = deque()
        self._is_closed = False
        self._failure: Fault | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_lease = file.last_lease()
        now_ms = clock.monotonic_ms()
        self._deadlines_ms = {lease: now_ms + ttl_ms for lease, ttl_ms in keyspace.leases().items()}
        self._timer: asyncio.TimerHandle | None = None
        self._arm_timer()
        self.commit_count = 0
        """Commits so far: with `revision`, shows how many transactions shared one."""

    @classmethod
    async def open(
        cls,
        path: Path | str = IN_MEMORY,
        *,
        clock: Clock | None = None,
        mark: Path | None = None,
        is_new: bool = False,
        expendable: Sequence[KeyRange] = (),
    ) -> "EmbeddedMetastore":
        """Open or create the file. Raises `Conflict` when another process has it, `Corrupted` when it is damaged.

        `mark`, `is_new` and `expendable` are those of `SqliteFile`.
        """
        writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metastore-writer")
        with ExitStack() as undo:
            undo.callback(writer.shutdown, wait=False)
            file, keyspace = await asyncio.get_running_loop().run_in_executor(
                writer, partial(_open_file, path, mark=mark, is_new=is_new, expendable=expendable)
            )
            undo.pop_all()
        return cls(file, keyspace, writer=writer, clock=clock or SystemClock())

    @property
    def txn_limits(self) -> TxnLimits:
        return TXN_LIMITS

    @property
    def damaged(self) -> tuple[str, ...]:
        """Keys of expendable entries that were damaged and are gone."""
        return self._file.damaged

    @property
    def revision(self) -> int:
        return self._keyspace.revision

    async def get(self, key: str) -> KeyValue | None:
        self._check_usable()
        return self._keyspace.get(key)

    async def range(self, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False) -> RangeResult:
        self._check_usable()
        return self._keyspace.range(keys, limit=limit, is_descending=is_descending)

    async def pages(self, keys: KeyRange, *, limit: int = PAGE_KEYS) -> AsyncIterator[RangeResult]:
        whole = await self.range(keys)
        for start in range(0, max(len(whole.items), 1), limit):
            items = whole.items[start : start + limit]
            yield RangeResult(items, whole.revision, has_more=start + limit < len(whole.items))

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        check_size(TXN_LIMITS, compares, then_ops, else_ops)
        result: TxnResult = await self._submit(lambda draft: draft.txn_in_steps(compares, then_ops, else_ops))
        return result

    async def grant_lease(self, ttl_ms: int) -> Lease:
        check_lease_time(ttl_ms)
        lease = self._last_lease = LeaseId(self._last_lease + 1)
        await self._submit(_in_one_step(lambda draft: draft.grant_lease(lease, ttl_ms)))
        return Lease(lease, ttl_ms)

    async def keep_alive(self, lease: LeaseId) -> int:
        self._check_usable()
        ttl_ms = self._keyspace.lease_ttl_ms(lease)
        if ttl_ms is None or self._deadlines_ms.get(lease, 0) <= self._clock.monotonic_ms():
            raise LeaseNotFound(f"lease {lease} has run out or never was")
        self._deadlines_ms[lease] = self._clock.monotonic_ms() + ttl_ms
        return ttl_ms

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._submit(_in_one_step(lambda draft: draft.revoke_lease(lease)))

    async def expire_leases(self) -> None:
        """Revoke every lease whose time is over. A timer does it too; this is for who owns the clock."""
        for revoked in self._expire():
            await revoked

    def watch(self, keys: KeyRange, *, from_revision: int, without: str = "") -> AsyncIterator[Changes]:
        self._check_usable()
        return self._history.follow(keys, from_revision, without=without)

    async def snapshot_to(self, path: Path) -> None:
        """Copy the whole store, as of now or a little later, to a new file at `path`."""
        self._check_usable()
        await self._loop.run_in_executor(self._writer, self._file.snapshot_to, path)

    async def close(self) -> None:
        """Finish what was accepted, then let go of the file."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._idle.wait()
        self._history.end(self._failure)
        await self._loop.run_in_executor(self._writer, self._file.close)
        self._writer.shutdown()

    async def _submit(self, command: _Command) -> Any:
        self._check_usable()
        if len(self._waiting) >= COMMANDS_WAITING_MAX:
            raise Overloaded(f"{COMMANDS_WAITING_MAX} metastore transactions are waiting for the disk")
        return await self._enqueue(command)

    def _enqueue(self, command: _Command) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((command, done))
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: what else this turn of the loop submits shares the commit.
            self._loop.call_soon(self._commit_waiting)
        return done

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise StorageFailed(str(self._failure)) from self._failure
        if self._is_closed:
            raise NotReady("metastore is closed")

    def _commit_waiting(self) -> None:
        draft = Draft(self._keyspace)
        outcomes: list[_Outcome] = []
        self._evaluate(self._steps(draft, outcomes), draft, outcomes)

    def _steps(self, draft: Draft, outcomes: list[_Outcome]) -> Steps[None]:
        """Evaluates those who wait now. The keyspace stands still until their commit is merged."""
        for number in range(1, len(self._waiting) + 1):
            command, done = self._waiting.popleft()
            if done.cancelled():
                continue
            try:
                outcomes.append((done, (yield from command(draft))))
            except HeadraceError as refusal:
                outcomes.append((done, refusal))
            except Exception as error:
                # Our own mistake, and half a command may be in the draft: none of it may reach the disk.
                self._fail(error, [done, *(each for each, _ in outcomes)])
                return
            if not number % STEP_SIZE:
                yield

    def _evaluate(self, steps: Steps[None], draft: Draft, outcomes: list[_Outcome]) -> None:
        """One step, and the rest in the next turns of the loop: a transaction of thousands would keep it for long."""
        for _ in steps:
            self._loop.call_soon(self._evaluate, steps, draft, outcomes)
            return
        if self._failure is not None:
            return
        if draft.is_empty:
            self._finish(outcomes)
            return
        commit = self._loop.run_in_executor(self._writer, self._file.commit, draft)
        commit.add_done_callback(lambda commit: self._committed(commit, draft, outcomes))

    def _committed(self, commit: asyncio.Future[None], draft: Draft, outcomes: list[_Outcome]) -> None:
        error = commit.exception()
        if error is not None:
            self._fail(error, [done for done, _ in outcomes])
            return
        self.commit_count += 1
        self._keyspace.merge(draft)
        self._note_leases(draft)
        self._history.add(draft.events)
        self._finish(outcomes)

    def _finish(self, outcomes: list[_Outcome]) -> None:
        for done, outcome in outcomes:
            if done.cancelled():
                continue
            if isinstance(outcome, HeadraceError):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
        if self._waiting:
            self._commit_waiting()
        else:
            self._idle.set()

    def _fail(self, error: BaseException, waiters: list[asyncio.Future[Any]]) -> None:
        if isinstance(error, Fault):
            self._failure = error
        else:
            self._failure = StorageFailed(f"metastore failed: {error!r}")
            self._failure.__cause__ = error
        waiters.extend(done for _, done in self._waiting)
        self._waiting.clear()
        for done in waiters:
            if not done.cancelled():
                done.set_exception(self._failure)
        self._history.end(self._failure)
        self._idle.set()

    def _note_leases(self, draft: Draft) -> None:
        now_ms = self._clock.monotonic_ms()
        for lease, ttl_ms in draft.leases_granted.items():
            self._deadlines_ms[lease] = now_ms + ttl_ms
        for lease in draft.leases_revoked:
            self._deadlines_ms.pop(lease, None)
        if draft.leases_granted:
            self._arm_timer()

    def _expire(self) -> list[asyncio.Future[Any]]:
        now_ms = self._clock.monotonic_ms()
        expired = [lease for lease, deadline_ms in self._deadlines_ms.items() if deadline_ms <= now_ms]
        for lease in expired:
            # Forgotten at once: nobody keeps alive, or expires again, what is on its way out.
            del self._deadlines_ms[lease]
        return [self._enqueue(_in_one_step(partial(Draft.revoke_lease, lease=lease))) for lease in expired]

    def _arm_timer(self) -> None:
        """Wake when the earliest lease could run out. A kept-alive lease is looked at then, and waited for again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._deadlines_ms and not self._is_closed:
            delay_ms = max(0, min(self._deadlines_ms.values()) - self._clock.monotonic_ms())
            # One more: the loop's clock is finer than ours and may wake just before the deadline.
            self._timer = self._loop.call_later((delay_ms + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._failure is not None or self._is_closed:
            return
        for revoked in self._expire():
            revoked.add_done_callback(_forget_outcome)
        self._arm_timer()


def _open_file(
    path: Path | str, *, mark: Path | None, is_new: bool, expendable: Sequence[KeyRange]
) -> tuple[SqliteFile, Keyspace]:
    file = SqliteFile(path, mark=mark, is_new=is_new)
    with ExitStack() as undo:
        undo.callback(file.close)
        keyspace = file.load(expendable)
        undo.pop_all()
    return file, keyspace


def _in_one_step(command: Callable[[Draft], None]) -> _Command:
    def steps(draft: Draft) -> Steps[None]:
        command(draft)
        yield from ()

    return steps


def _forget_outcome(revoked: asyncio.Future[Any]) -> None:
    """A failed commit is told to those who wait; a lease that was revoked first is as gone as one can be."""
    if not revoked.cancelled():
        revoked.exception()
