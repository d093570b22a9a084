"""Fetch sessions against a client that keeps its own books: after any exchange both know the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doors.kafka.fetch_sessions import (
    SESSIONS_BYTES_MAX,
    FetchSession,
    FetchSessions,
    OtherTopicNames,
    SessionNotFound,
    WrongSessionEpoch,
)
from headrace.wire.kafka.fetch import (
    EpochEnd,
    FetchCall,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
)

pytestmark = pytest.mark.trap(12)


def asked(index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, -1, 1000)


def call(
    session_id: int, epoch: int, partitions: list[FetchPartition] | None = None, forgotten: list[int] | None = None
) -> FetchCall:
    topics = [FetchTopic("t", partitions)] if partitions else []
    gone = [ForgottenTopic("t", forgotten)] if forgotten else []
    return FetchCall(-1, 0, 1, 1000, 0, session_id, epoch, topics, gone, "")


def opened(sessions: FetchSessions, *partitions: FetchPartition) -> FetchSession:
    session = sessions.open(call(0, 0, list(partitions)))
    assert session is not None
    return session


def row(index: int, *, high_watermark: int = 0, log_start: int = 0, size: int = 0, error: int = 0) -> FetchedPartition:
    return FetchedPartition(index, error, high_watermark, high_watermark, log_start, (), size)


def news(session: FetchSession, *rows: FetchedPartition) -> list[int]:
    return [each.index for topic in session.news([FetchedTopic("t", list(rows))]) for each in topic.partitions]


@pytest.mark.parametrize("is_by_id", [False, True])
def test_a_session_keeps_to_names_or_to_ids(is_by_id: bool) -> None:
    """An answer of the other kind has no room for what the session calls its topics."""
    sessions = FetchSessions(10)
    session = sessions.open(call(0, 0, [asked(0)]), is_by_id=is_by_id)
    assert session is not None
    with pytest.raises(OtherTopicNames):
        sessions.open(call(session.id, 1), is_by_id=not is_by_id)
    assert sessions.open(call(session.id, 1), is_by_id=is_by_id) is session


def test_a_session_ends_with_its_last_partition() -> None:
    sessions = FetchSessions(10)
    session = opened(sessions, asked(0))
    assert sessions.open(call(session.id, 1, forgotten=[0])) is None
    assert (len(sessions), sessions.size) == (0, 0)
    with pytest.raises(SessionNotFound):
        sessions.open(call(session.id, 2))


def test_epochs_count_up_and_wrap_to_one() -> None:
    sessions = FetchSessions(10)
    session = opened(sessions, asked(0))
    assert session.epoch == 1
    for expected in (2, 3):
        assert sessions.open(call(session.id, session.epoch)) is session
        assert session.epoch == expected
    session.epoch = 2**31 - 1
    sessions.open(call(session.id, session.epoch))
    assert session.epoch == 1


def test_wrong_epoch_changes_nothing() -> None:
    sessions = FetchSessions(10)
    session = opened(sessions, asked(0))
    with pytest.raises(WrongSessionEpoch):
        sessions.open(call(session.id, 7, [asked(5)]))
    assert list(session.partitions) == [("t", 0)]
    assert sessions.open(call(session.id, 1)) is session


def test_sessions_switched_off_never_hand_out_an_id_and_know_none() -> None:
    sessions = FetchSessions(0)
    assert sessions.open(call(0, 0, [asked(0)])) is None
    assert sessions.open(call(5, -1)) is None
    with pytest.raises(SessionNotFound):
        sessions.open(call(5, 3))


def test_number_of_sessions_is_bounded() -> None:
    sessions = FetchSessions(3)
    made = [opened(sessions, asked(0)) for _ in range(10)]
    assert len(sessions) == 3
    assert len({session.id for session in made}) == 10
    with pytest.raises(SessionNotFound):
        sessions.open(call(made[0].id, 1))


def test_ids_are_never_zero_and_never_taken_twice() -> None:
    sessions = FetchSessions(10)
    kept = opened(sessions, asked(0))
    sessions._next_id = 2**31 - 1
    assert opened(sessions, asked(0)).id == 2**31 - 1
    assert opened(sessions, asked(0)).id not in (0, kept.id)


def test_only_what_changed_is_news() -> None:
    session = opened(FetchSessions(1), asked(0), asked(1))
    assert news(session, row(0), row(1)) == [0, 1]
    assert news(session, row(0), row(1)) == []
    assert news(session, row(0, high_watermark=5), row(1)) == [0]
    assert news(session, row(0, high_watermark=5), row(1, log_start=2)) == [1]
    assert news(session, row(0, high_watermark=5, size=10), row(1, log_start=2)) == [0]
    assert news(session, row(0, high_watermark=5, error=3), row(1, log_start=2)) == [0]
    assert news(session, row(0, high_watermark=5, error=3), row(1, log_start=2)) == [0]
    assert news(session, row(0, high_watermark=5), row(1, log_start=2)) == [0]
    diverging = row(1, log_start=2)
    diverging.diverging = EpochEnd(1, 2)
    assert news(session, row(0, high_watermark=5), diverging) == [1]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 4), st.integers(0, 9), max_size=3),
            st.sets(st.integers(0, 4), max_size=2),
            st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=5, max_size=5),
        ),
        max_size=12,
    )
)
def test_client_and_broker_agree_after_any_exchange(
    exchanges: list[tuple[dict[int, int], set[int], list[tuple[int, bool]]]],
) -> None:
    """What the client forgets is not asked for; what it was not told is what it already knows."""
    sessions = FetchSessions(1)
    session = opened(sessions, asked(0))
    wanted = {0: 0}
    known: dict[int, tuple[int, int]] = {}
    for added, forgotten, world in exchanges:
        forgotten = forgotten - added.keys()
        partitions = [asked(index, offset) for index, offset in added.items()]
        wanted |= added
        for index in forgotten:
            wanted.pop(index, None)
            known.pop(index, None)
        found = sessions.open(call(session.id, session.epoch, partitions, sorted(forgotten)))
        if not wanted:
            assert found is None
            return
        assert found is session
        topics = session.topics()
        assert {each.index: each.offset for topic in topics for each in topic.partitions} == wanted
        rows = [row(index, high_watermark=world[index][0], size=int(world[index][1])) for index in wanted]
        for told in session.news([FetchedTopic("t", rows)]):
            for each in told.partitions:
                known[each.index] = (each.high_watermark, each.log_start)
        assert known == {index: (world[index][0], 0) for index in wanted}


def test_sessions_together_take_bounded_memory() -> None:
    """Sessions outlive their connections: one client could leave half a gigabyte behind."""
    sessions = FetchSessions(1000)
    share = [asked(index) for index in range(15_000)]
    ids = [opened(sessions, *share).id for _ in range(40)]
    assert 0 < len(sessions) < 40
    assert sessions.size == sum(each.size for each in sessions._sessions.values()) <= SESSIONS_BYTES_MAX
    with pytest.raises(SessionNotFound):
        sessions.open(call(ids[0], 1))
    assert sessions.open(call(ids[-1], 1)) is not None
    for session_id in ids:
        sessions.open(call(session_id, -1))
    assert (len(sessions), sessions.size) == (0, 0)


def test_a_session_that_grows_too_large_ends_and_its_client_is_served_without_one() -> None:
    sessions = FetchSessions(10)
    session = opened(sessions, *(asked(index) for index in range(15_000)))
    with pytest.raises(SessionNotFound):
        sessions.open(call(session.id, 1, [asked(index) for index in range(15_000, 30_000)]))
    assert (len(sessions), sessions.size) == (0, 0)
    assert sessions.open(call(0, 0, [asked(index) for index in range(30_000)])) is None
    assert (len(sessions), sessions.size) == (0, 0)


def test_what_is_forgotten_no_longer_counts() -> None:
    sessions = FetchSessions(10)
    session = opened(sessions, asked(0), asked(1))
    size = sessions.size
    sessions.open(call(session.id, 1, [asked(1, 5)], [0, 7]))
    assert sessions.size == session.size == size // 2
