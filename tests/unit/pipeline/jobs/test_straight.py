"""How the reads of a backfill are put into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.jobs.straight import _regroup
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.planning import TASK_BYTES_MAX, TASK_BYTES_MIN, TASKS_PER_CORE, TailRead, Task

MIB = 1024 * 1024


def reads(*sizes: int) -> list[Task]:
    """A task for each."""
    return [
        (TailRead(place=TopicPartition("orders", i), topic_id="id", start=0, end=1, size=size),)
        for i, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(0, 40 * MIB), max_size=60), st.integers(1, 16))
def test_every_read_is_in_one_task_and_in_order(sizes: list[int], cores: int) -> None:
    tasks = reads(*sizes)
    regrouped = _regroup(tasks, cores=cores)
    assert [read for task in regrouped for read in task] == [read for (read,) in tasks]
    assert all(regrouped)


def test_there_are_a_few_tasks_for_each_core() -> None:
    assert len(_regroup(reads(*[4 * MIB] * 120), cores=2)) == 2 * TASKS_PER_CORE


def test_little_is_not_spread_and_much_is_not_piled_up() -> None:
    assert len(_regroup(reads(*[TASK_BYTES_MIN // 8] * 16), cores=8)) == 2
    largest = max(sum(read.size for read in task) for task in _regroup(reads(*[32 * MIB] * 100), cores=1))
    assert largest <= TASK_BYTES_MAX
    assert _regroup([], cores=2) == []
