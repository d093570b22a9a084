"""Tail memory: sizes, the budget, and that nothing is used again while somebody can still see it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from headrace.aligned import LendablePages, lendable_pages
from headrace.log.arena import CHUNK_SIZES, ArenaPool, Chunk, make_chunks

SMALL, MIDDLE, LARGE = CHUNK_SIZES


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("needed", "previous", "seconds", "expected"),
    [
        (1, None, 0, SMALL),
        (SMALL, None, 0, SMALL),
        (SMALL + 1, None, 0, MIDDLE),
        (LARGE, None, 0, LARGE),
        (LARGE + 1, None, 0, LARGE + 1),
        (1, SMALL, 0.1, MIDDLE),
        (1, MIDDLE, 0.1, LARGE),
        (1, LARGE, 0.1, LARGE),
        (5_000_000, LARGE, 0.1, 5_000_000),
        (1, 5_000_000, 0.1, LARGE),
        (1, SMALL, 1, SMALL),
        (1, MIDDLE, 1, MIDDLE),
        (MIDDLE + 1, MIDDLE, 1, LARGE),
        (1, SMALL, 60, SMALL),
        (1, MIDDLE, 60, SMALL),
        (1, LARGE, 60, MIDDLE),
        (LARGE, LARGE, 60, LARGE),
    ],
)
def test_size_follows_how_fast_the_last_chunk_was_filled(
    needed: int, previous: int | None, seconds: float, expected: int
) -> None:
    clock = Clock()
    pool = ArenaPool(1 << 30, clock)
    before = pool.take(previous, None) if previous else None
    if before is not None:
        pool.give_back(before)
    clock.now += seconds
    chunk = pool.take(needed, before)
    assert (chunk.size, len(chunk.view), chunk.used) == (expected, expected, 0)
    assert pool.used_bytes == expected


def test_bytes_out_are_counted_until_they_are_given_back() -> None:
    pool = ArenaPool(1 << 30)
    chunks = [pool.take(1, None) for _ in range(3)]
    assert pool.used_bytes == 3 * SMALL
    for chunk in chunks:
        pool.give_back(chunk)
    assert pool.used_bytes == 0


def test_chunk_is_used_again_once_nobody_sees_it() -> None:
    pool = ArenaPool(1 << 30)
    chunk = pool.take(1, None)
    memory = chunk.memory
    pool.give_back(chunk)
    assert pool.take(1, None).memory is memory


@pytest.mark.requirement("R3.49")
@pytest.mark.parametrize("size", CHUNK_SIZES)
def test_chunk_somebody_sees_is_not_used_again_until_he_lets_go(size: int) -> None:
    """A response that waits in a socket holds slices of the tail; its bytes must not become another partition's."""
    pool = ArenaPool(1 << 30)
    chunk = pool.take(size, None)
    chunk.view[:5] = b"bytes"
    waiting = [chunk.view[0:2], chunk.view[2:5]]
    memory = chunk.memory
    pool.give_back(chunk)
    assert pool.take(size, None).memory is not memory
    assert pool.lingering_bytes == size
    assert b"".join(waiting) == b"bytes"
    waiting.pop()
    assert pool.take(size, None).memory is not memory
    waiting.pop()
    assert pool.take(size, None).memory is memory
    assert pool.lingering_bytes == 0


@pytest.mark.parametrize("memory", [bytearray(SMALL), lendable_pages(SMALL)], ids=["bytearray", "pages"])
def test_view_of_a_view_counts_too(memory: bytearray | LendablePages) -> None:
    chunk = Chunk(memory)
    inner = memoryview(chunk.view[10:20])[2:4]
    assert chunk.is_referenced_elsewhere()
    chunk.view[12:14] = b"ok"
    assert bytes(inner) == b"ok"
    inner.release()
    assert not chunk.is_referenced_elsewhere()


def test_somebody_who_holds_the_view_itself_counts_too() -> None:
    chunk = Chunk(bytearray(SMALL))
    holder = memoryview(chunk.view)
    assert chunk.is_referenced_elsewhere()
    assert len(chunk.view) == SMALL
    del holder
    assert not chunk.is_referenced_elsewhere()


def test_what_was_lent_to_a_socket_is_never_filled_again() -> None:
    pool = ArenaPool(1 << 30)
    chunk, other = pool.take(LARGE, None), pool.take(LARGE, None)
    lent, kept = chunk.memory, other.memory
    assert isinstance(lent, LendablePages)
    lent.is_lent = True
    pool.give_back(chunk)
    pool.give_back(other)
    assert pool.take(LARGE, None).memory is kept
    assert pool.take(LARGE, None).memory is not lent
    assert pool.lingering_bytes == 0


def test_odd_sizes_go_back_to_the_allocator() -> None:
    pool = ArenaPool(1 << 30)
    odd = pool.take(LARGE + 1, None)
    memory = odd.memory
    pool.give_back(odd)
    assert pool.take(LARGE + 1, None).memory is not memory


def test_what_came_back_is_kept_as_far_as_the_budget_goes() -> None:
    pool = ArenaPool(8 * LARGE)
    for chunk in [pool.take(LARGE, None) for _ in range(12)]:
        pool.give_back(chunk)
    pool.take(1, None)
    assert len(pool._free[LARGE]) == 7
    for _ in range(4 * MIDDLE // SMALL):
        pool.take(1, None)
    assert len(pool._free[LARGE]) == 7, "what is out and what is kept share the budget"
    pool.take(2 * LARGE, None)
    assert len(pool._free[LARGE]) == 5


def test_memory_is_made_ahead_while_more_is_needed_than_comes_back() -> None:
    pool = ArenaPool(64 * LARGE)
    pool.take(1, None)
    assert not pool.is_short, "nobody is busy"
    chunk = pool.take(LARGE, None)
    assert pool.is_short
    made = make_chunks()
    pool.add(made)
    assert not pool.is_short
    assert all(pool.take(LARGE, None).memory in made for _ in made)
    assert not pool.is_short
    pool.give_back(chunk)
    pool.take(LARGE, None)
    assert not pool.is_short, "what came back was enough"
    pool.take(LARGE, None)
    assert pool.is_short


def test_no_more_is_made_ahead_than_the_budget_has() -> None:
    pool = ArenaPool(3 * LARGE)
    pool.take(LARGE, None)
    pool.add(make_chunks())
    assert len(pool._free[LARGE]) == 2


class SharedMemory(RuleBasedStateMachine):
    """Chunks taken, written, looked at and given back in any order: what a reader holds never changes."""

    chunks = Bundle("chunks")
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.pool = ArenaPool(1 << 30)
        self.mark = 0

    @rule(target=chunks, needed=st.sampled_from([1, SMALL, SMALL + 1, LARGE]))
    def take(self, needed: int) -> Chunk:
        chunk = self.pool.take(needed, None)
        self.mark += 1
        chunk.view[:8] = self.mark.to_bytes(8, "big")
        return chunk

    @rule(target=readers, chunk=chunks)
    def look(self, chunk: Chunk) -> tuple[list[memoryview], bytes]:
        return [chunk.view[:8]], bytes(chunk.view[:8])

    @rule(chunk=consumes(chunks))
    def give_back(self, chunk: Chunk) -> None:
        self.pool.give_back(chunk)

    @rule(reader=readers)
    def check(self, reader: tuple[list[memoryview], bytes]) -> None:
        views, seen = reader
        assert all(bytes(view) == seen for view in views)

    @rule(reader=consumes(readers))
    def let_go(self, reader: tuple[list[memoryview], bytes]) -> None:
        self.check(reader)
        reader[0].clear()


TestSharedMemory = SharedMemory.TestCase
TestSharedMemory.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
