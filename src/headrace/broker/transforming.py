"""Batches on their way through a topic's Wasm module, in the order they came.

Each partition has a lane: a batch is looked at when all before it have landed, so that order is the order of calls and a
repeated batch is known before any module sees it. It runs on a worker's thread and is appended on the loop. A topic that is given
another module meanwhile has the batch transformed anew: the log takes no batch but from the module in force. A lane outlives
its module by the batches that are still in it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.broker.dead_letters import DeadLetters
from headrace.broker.deferred import Deferred
from headrace.broker.topics import Topics
from headrace.clock import Clock
from headrace.errors import Concurrent, HeadraceError, NotReady, TransformFailed
from headrace.log.inspection import Verdict
from headrace.log.partition import Appended, PartitionLog
from headrace.records.batch import check_batch
from headrace.telemetry.logging import get_logger
from headrace.transforms.batches import without_records
from headrace.transforms.service import Transforms

LANE_BYTES_MAX: Final = 8 << 20
"""Of batches that wait in one partition's lane: beyond it, whoever sends more is not read any more."""
WAITING_BYTES_MAX: Final = 128 << 20
"""Of all lanes together."""
_SWITCHES_MAX: Final = 8
"""How often the module may be switched while a batch is in it, before its producer is asked to come again."""

Append = Callable[[bytes, str, Verdict | None], Appended]
"""Takes a batch into the log, made by the module that is named; by none where the name is empty."""

log = get_logger(__name__)


class _Job:
    __slots__ = ("append", "batch", "deferred", "refused")

    def __init__(self, batch: bytes, append: Append, refused: Callable[[], None]) -> None:
        self.batch = batch
        self.append = append
        self.refused = refused
        self.deferred: Deferred[Appended] = Deferred()


class _Lane:
    __slots__ = ("jobs", "size", "task")

    def __init__(self) -> None:
        self.jobs: deque[_Job] = deque()
        self.size = 0
        self.task: asyncio.Task[None] | None = None


class Transforming:
    def __init__(
        self,
        transforms: Transforms,
        topics: Topics,
        letters: DeadLetters,
        clock: Clock,
        *,
        wait_for_log: Callable[[int], Awaitable[None]],
    ) -> None:
        """`wait_for_log` returns when so many bytes may be appended."""
        self._transforms = transforms
        self._topics = topics
        self._letters = letters
        self._clock = clock
        self._lanes: dict[PartitionLog, _Lane] = {}
        self._room_wanted: list[Callable[[], None]] = []
        self._is_stopped = False
        topics.has_batches_waiting = lambda topic: (
            bool(self._lanes) and any(each in self._lanes for each in topic.partitions)
        )
        self._wait_for_log = wait_for_log

    @property
    def is_busy(self) -> bool:
        return bool(self._lanes)

    def concerns(self, partition: PartitionLog) -> bool:
        """Whether a batch for `partition` has to go this way."""
        return bool(partition.policy.wasm_module_id) or partition in self._lanes

    def submit(
        self, partition: PartitionLog, batch: bytes, append: Append, *, refused: Callable[[], None] = lambda: None
    ) -> Deferred[Appended]:
        """Resolves when the batch is in the log, not yet durable. `refused` is told first when its module fails on it."""
        if self._is_stopped:
            raise NotReady("stopping")
        lane = self._lanes.get(partition)
        job = _Job(batch, append, refused)
        if lane is None:
            lane = self._lanes[partition] = _Lane()
        lane.jobs.append(job)
        lane.size += len(batch)
        self._transforms.metrics.wasm_waiting_bytes += len(batch)
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._work(partition, lane))
        return job.deferred

    # -- room ----------------------------------------------------------------------------------------------------

    def has_room(self, partition: PartitionLog) -> bool:
        lane = self._lanes.get(partition)
        if lane is None:
            return True
        return lane.size < LANE_BYTES_MAX and self._transforms.metrics.wasm_waiting_bytes < WAITING_BYTES_MAX

    def when_room(self, callback: Callable[[], None]) -> None:
        """Told once, when a batch has left some lane: look again then."""
        self._room_wanted.append(callback)

    def forget_room(self, callback: Callable[[], None]) -> None:
        if callback in self._room_wanted:
            self._room_wanted.remove(callback)

    # -- working -------------------------------------------------------------------------------------------------

    async def _work(self, partition: PartitionLog, lane: _Lane) -> None:
        while lane.jobs:
            job = lane.jobs[0]
            try:
                appended = await self._serve(partition, job)
            except HeadraceError as error:
                self._done(partition, lane)
                job.deferred.reject(error)
            except Exception as error:
                log.exception("a batch was not transformed", topic=partition.topic_name, partition=partition.index)
                self._done(partition, lane)
                job.deferred.reject(error)
            else:
                self._done(partition, lane)
                job.deferred.resolve(appended)

    def _done(self, partition: PartitionLog, lane: _Lane) -> None:
        """The batch in front has landed or failed. Before anybody is told: they may send the next."""
        size = len(lane.jobs.popleft().batch)
        lane.size -= size
        self._transforms.metrics.wasm_waiting_bytes -= size
        if not lane.jobs:
            del self._lanes[partition]
            topic = self._topics.find_by_id(partition.topic_id)
            if topic is not None and not partition.policy.wasm_module_id:
                self._topics.batches_landed(topic)
        wanted, self._room_wanted = self._room_wanted, []
        for tell in wanted:
            tell()

    async def _serve(self, partition: PartitionLog, job: _Job) -> Appended:
        for _ in range(_SWITCHES_MAX):
            policy = partition.policy
            module_id = policy.wasm_module_id
            if not module_id:
                return await self._append_plain(partition, job)
            header = check_batch(job.batch, size_max=policy.message_bytes_max)
            repeated = partition.find_repeated(header, self._clock.now_ms())
            if repeated is not None:
                return repeated
            made = await self._made(partition, job, module_id)
            await self._wait_for_log(len(made))
            if partition.policy.wasm_module_id == module_id:
                return job.append(made, module_id, None)
        raise Concurrent(f"the Wasm module of {partition.topic_name} was switched {_SWITCHES_MAX} times meanwhile")

    async def _append_plain(self, partition: PartitionLog, job: _Job) -> Appended:
        """Its topic has no module any more, and it still must not overtake what came before it."""
        verdict = await partition.inspect(job.batch) if partition.needs_inspection(job.batch) else None
        await self._wait_for_log(len(job.batch))
        return job.append(job.batch, "", verdict)

    async def _made(self, partition: PartitionLog, job: _Job, module_id: str) -> bytes:
        policy = partition.policy
        try:
            return await self._transforms.run(
                module_id,
                job.batch,
                topic=partition.topic_name,
                partition=partition.index,
                keys_needed=policy.is_compacted,
            )
        except TransformFailed as error:
            log.warning("module failed", module=module_id, topic=partition.topic_name, reason=str(error))
            if not policy.wasm_dead_letter_topic:
                job.refused()
                raise
            await self._letters.bury(partition, job.batch, policy.wasm_dead_letter_topic, module_id, error)
            self._transforms.metrics.wasm_dead_letters_total += 1
            return without_records(job.batch)

    async def stop(self) -> None:
        """Take nothing more; what is in a lane fails, and its producer sends it again elsewhere or later."""
        self._is_stopped = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            for job in lane.jobs:
                job.deferred.reject(NotReady("stopping"))
        self._lanes.clear()
