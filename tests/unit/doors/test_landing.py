"""Bytes of all connections land in one buffer: what one of them still needs is safe from what the others bring."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.support.kafka_door import OpenedDoor, Wire, opened_door
from tests.support.logs import batch_of, read_values
from tests.support.raw_kafka import produce_request

from headrace.doors.connection_set import LANDING_SIZE
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest

TOPIC = "topic"
NOISE = bytes(encode_request(ApiVersionsRequest(), 0, 99, "~" * 30_000)) * 2
"""Almost as much as the buffer holds, and answered at once."""


@pytest.fixture(params=[False, True], ids=["compiled", "pure"])
def is_pure(request: pytest.FixtureRequest) -> bool:
    """Whether frames are taken one by one in Python, or a whole landing at once."""
    return bool(request.param)


def frame_of(value: bytes, correlation_id: int = 1, timeout_ms: int = 60_000) -> bytes:
    request = produce_request(TOPIC, 0, batch_of(value), timeout_ms=timeout_ms)
    return bytes(encode_request(request, 9, correlation_id, "client"))


def overwrite(door: OpenedDoor) -> None:
    """Another client fills the buffer from end to end."""
    wire = door.connect()
    wire.feed(NOISE)
    assert wire._connection._buffer is None
    door.peers.landing[:] = b"~" * len(door.peers.landing)
    wire.close()


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


async def test_frames_cut_at_every_byte_on_two_connections_in_turn(tmp_path: Path, is_pure: bool) -> None:
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        one, two = door.connect(), door.connect()
        first, second = frame_of(b"first"), frame_of(b"second!")
        count = 0
        for cut in range(1, len(first)):
            one.feed(first[:cut])
            two.feed(second[:-cut])
            one.feed(first[cut:])
            two.feed(second[-cut:])
            count += 1
            if not count % 20:
                await door.settle()
        await door.settle()
        assert one.answered() == two.answered() == [1] * count
        (partition,) = door.topics.get(TOPIC).partitions
        assert await read_values(partition) == [b"first", b"second!"] * count
        assert one._connection._buffer is two._connection._buffer is None


async def test_frames_that_come_byte_by_byte_on_two_connections(tmp_path: Path, is_pure: bool) -> None:
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        one, two = door.connect(), door.connect()
        for left, right in zip(frame_of(b"one"), frame_of(b"two"), strict=True):
            one.feed(bytes([left]))
            two.feed(bytes([right]))
        await door.settle()
        (partition,) = door.topics.get(TOPIC).partitions
        assert await read_values(partition) == [b"one", b"two"]


class Full:
    """A log that is full until it is told otherwise."""

    def __init__(self, door: OpenedDoor, patch: pytest.MonkeyPatch, requests_before: int = 0) -> None:
        self._store = door.log.store
        self._before = requests_before
        self._is_full = True
        patch.setattr(self._store, "can_take", self._can_take)

    def _can_take(self, size: int) -> bool:
        if not self._is_full:
            return True
        if self._before:
            self._before -= 1
            return True
        return False

    def has_room(self) -> None:
        self._is_full = False
        self._store.room_changed()


async def test_blocked_frame_survives_what_others_send(
    tmp_path: Path, is_pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        full = Full(door, monkeypatch)
        wire = door.connect()
        wire.feed(frame_of(b"kept as it came"))
        assert not wire.is_read_from
        overwrite(door)
        await door.settle()
        full.has_room()
        await door.settle()
        assert wire.answered() == [1]
        (partition,) = door.topics.get(TOPIC).partitions
        assert await read_values(partition) == [b"kept as it came"]
        assert wire._connection._buffer is None


async def test_second_of_four_frames_in_one_read_blocks(
    tmp_path: Path, is_pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is served, the fourth is cut off: what is behind the blocked one waits with it, in order."""
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        full = Full(door, monkeypatch, requests_before=1)
        wire = door.connect()
        frames = [frame_of(b"value %d" % number, number) for number in range(4)]
        wire.feed(b"".join(frames)[:-10])
        await door.settle()
        assert (wire.answered(), wire.is_read_from) == ([0], False)
        overwrite(door)
        full.has_room()
        await door.settle()
        assert wire.answered() == [0, 1, 2]
        overwrite(door)
        wire.feed(frames[3][-10:])
        await door.settle()
        assert wire.answered() == [0, 1, 2, 3]
        (partition,) = door.topics.get(TOPIC).partitions
        assert await read_values(partition) == [b"value %d" % number for number in range(4)]


@pytest.mark.parametrize("piece", [LANDING_SIZE, 50_000, 3_001])
async def test_frame_larger_than_the_buffer_among_others(tmp_path: Path, is_pure: bool, piece: int) -> None:
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        one, two = door.connect(), door.connect()
        values = [bytes(range(256)) * 1500, bytes(range(255)) * 1500]
        streams = [frame_of(b"small", 0) + frame_of(value) + frame_of(b"small", 2) for value in values]
        for number, both in enumerate(zip_longest(*(pieces(each, piece) for each in streams), fillvalue=b"")):
            one.feed(both[0])
            two.feed(both[1])
            if not number % 10:
                overwrite(door)
        await door.settle()
        assert one.answered() == two.answered() == [0, 1, 2]
        (partition,) = door.topics.get(TOPIC).partitions
        assert sorted(filter(None, await read_values(partition))) == sorted([*values, *[b"small"] * 4])
        assert one._connection._buffer is two._connection._buffer is None


async def test_a_client_that_leaves_in_mid_frame_takes_nothing_of_others_along(tmp_path: Path, is_pure: bool) -> None:
    async with opened_door(tmp_path, [TOPIC], is_pure=is_pure) as door:
        gone, stays = door.connect(), door.connect()
        frame = frame_of(b"whole")
        gone.feed(frame[:-1])
        stays.feed(frame[:-1])
        gone.close()
        await door.settle()
        overwrite(door)
        newcomer: Wire = door.connect()
        newcomer.feed(frame)
        stays.feed(frame[-1:])
        await door.settle()
        assert (gone.answered(), stays.answered(), newcomer.answered()) == ([], [1], [1])
