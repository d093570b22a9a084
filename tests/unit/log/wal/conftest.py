"""Both flushers, for whatever writes to a WAL."""

from collections.abc import Iterator

import pytest

from headrace.log.wal.flusher import FlusherKind, NativeFlusher, ThreadFlusher


@pytest.fixture(params=[NativeFlusher, ThreadFlusher], ids=["native", "thread"])
def each_flusher(request: pytest.FixtureRequest) -> Iterator[FlusherKind]:
    """The kind of flusher that every log opened in this test has."""
    kind: FlusherKind = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.log.store.fastest_flusher", lambda: kind)
        yield kind
