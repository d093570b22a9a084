"""One connection of the Kafka door, byte by byte and without a network: order, timeouts, room, back pressure."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.kafka_client import Wanted, fetch_request
from tests.support.kafka_door import Wire, opened_door
from tests.support.logs import batch_of, turn_of_the_loop
from tests.support.raw_kafka import produce_request

from headrace.doors.connection_set import ANSWER_BYTES_MIN, UNSENT_BYTES_MAX
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.headers import encode_request
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.fetch_response import FetchResponse
from headrace.wire.kafka.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.produce_response import PartitionProduceResponse, ProduceResponse

TOPIC = "topic"
OBJECT = {"durability": "object"}
SLOTS_MAX = 512


def produced(wire: Wire, correlation_id: int) -> PartitionProduceResponse:
    return wire.answer(correlation_id, ProduceResponse, 9).responses[0].partition_responses[0]


@pytest.mark.requirement("R4.7")
@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=60))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_stream_cut_anywhere_gives_the_same_answers(
    cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    frames = [encode_request(ApiVersionsRequest("raw", "1"), version, version, "id") for version in (0, 1, 2, 3, 4)] * 8
    stream = b"".join(frames)
    async with opened_door(tmp_path_factory.mktemp("cut")) as door:
        whole, pieces = door.connect(), door.connect()
        whole.feed(stream)
        for cut in cuts:
            pieces.feed(stream[:cut])
            stream = stream[cut:]
        pieces.feed(stream)
        await turn_of_the_loop(2)
        assert pieces.written == whole.written
        assert pieces.answered() == [0, 1, 2, 3, 4] * 8


@pytest.mark.requirement("R4.54")
@pytest.mark.trap(52)
async def test_produce_that_is_not_kept_in_time_is_answered_as_timed_out(tmp_path: Path) -> None:
    """Nobody uploads here, so a topic that waits for the upload waits for ever; the request does not."""
    async with opened_door(tmp_path, [TOPIC], config=OBJECT) as door:
        wire = door.connect()
        sent = wire.send(produce_request(TOPIC, 0, batch_of(b"x"), timeout_ms=1000), 9)
        await door.settle()
        door.clock.advance(999)
        door.peers.expire(door.clock.now_ms())
        await door.settle()
        assert wire.answered() == []
        door.clock.advance(1)
        door.peers.expire(door.clock.now_ms())
        await door.settle()
        row = produced(wire, sent)
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        # The append may still land: it does, and nobody is told twice.
        (partition,) = door.topics.get(TOPIC).partitions
        partition.mark_uploaded(1)
        await door.settle()
        assert partition.high_watermark == 1
        assert wire.answered() == [sent]


@pytest.mark.requirement("R4.54", "R4.58")
@pytest.mark.trap(52)
async def test_only_the_partitions_that_still_wait_are_timed_out(tmp_path: Path) -> None:
    async with opened_door(tmp_path, ["kept"]) as door:
        await door.topics.create("waiting", partitions=1, config=OBJECT)
        wire = door.connect()
        batch = bytes(batch_of(b"x"))
        rows = [TopicProduceData(name, bytes(16), [PartitionProduceData(0, batch)]) for name in ("kept", "waiting")]
        sent = wire.send(ProduceRequest(None, -1, 1000, rows), 9)
        await door.settle()
        door.clock.advance(1001)
        door.peers.expire(door.clock.now_ms())
        await door.settle()
        kept, waiting = (each.partition_responses[0] for each in wire.answer(sent, ProduceResponse, 9).responses)
        assert (kept.error_code, kept.base_offset) == (0, 0)
        assert (waiting.error_code, waiting.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)


@pytest.mark.requirement("R4.53")
async def test_produce_is_answered_when_its_topic_keeps_it(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC], config=OBJECT) as door:
        wire = door.connect()
        sent = wire.send(produce_request(TOPIC, 0, batch_of(b"x")), 9)
        await door.settle()
        assert wire.answered() == []
        door.topics.get(TOPIC).partitions[0].mark_uploaded(1)
        await door.settle()
        assert (produced(wire, sent).error_code, produced(wire, sent).base_offset) == (0, 0)


@pytest.mark.requirement("R4.8")
@pytest.mark.trap(24)
async def test_answers_leave_in_the_order_of_the_requests(tmp_path: Path) -> None:
    """The first waits for the disk, the second needs nothing, the third waits for records."""
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        sent = [
            wire.send(produce_request(TOPIC, 0, batch_of(b"x")), 9),
            wire.send(ApiVersionsRequest(), 0),
            wire.send(fetch_request(Wanted(TOPIC, 1), wait_ms=60_000), 12),
            wire.send(ApiVersionsRequest(), 0),
        ]
        assert wire.answered() == []
        await door.settle()
        assert wire.answered() == sent[:2]
        other = door.connect()
        other.send(produce_request(TOPIC, 0, batch_of(b"y")), 9)
        await door.settle()
        assert wire.answered() == sent


@pytest.mark.trap(24)
async def test_answers_of_one_flush_leave_in_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    plain: Callable[[Wire, list[bytes]], None] = Wire.writelines

    def counted(self: Wire, data: list[bytes]) -> None:
        writes.append(len(data))
        plain(self, data)

    monkeypatch.setattr(Wire, "writelines", counted)
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        for number in range(20):
            wire.send(produce_request(TOPIC, 0, batch_of(b"%d" % number)), 9)
        await door.settle()
        assert len(wire.answered()) == 20
        assert len(writes) <= 3


async def test_full_log_holds_the_request_back_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        store = door.log.store
        with monkeypatch.context() as full:
            full.setattr(store, "can_take", lambda size: False)
            sent = wire.send(produce_request(TOPIC, 0, batch_of(b"x"), timeout_ms=60_000), 9)
            await door.settle()
            assert (wire.answered(), wire.is_read_from, store.has_paused_producers) == ([], False, True)
        store.room_changed()
        await door.settle()
        assert produced(wire, sent).error_code == 0
        assert wire.is_read_from


@pytest.mark.trap(52)
async def test_log_that_stays_full_times_the_request_out_and_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        monkeypatch.setattr(door.log.store, "can_take", lambda size: False)
        sent = wire.send(produce_request(TOPIC, 0, batch_of(b"x"), timeout_ms=0), 9)
        while not wire.answered():
            await turn_of_the_loop()
        assert produced(wire, sent).error_code == ErrorCode.REQUEST_TIMED_OUT
        after = wire.send(ApiVersionsRequest(), 0)
        await turn_of_the_loop(2)
        assert wire.answered() == [sent, after]


async def test_too_many_requests_under_way_stop_the_reading(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC], config=OBJECT) as door:
        wire = door.connect()
        frame = bytes(encode_request(produce_request(TOPIC, 0, batch_of(b"x")), 9, 7, None))
        for _ in range(SLOTS_MAX):
            assert wire.is_read_from
            wire.feed(frame)
        assert not wire.is_read_from
        await door.settle()
        assert wire.answered() == []
        (partition,) = door.topics.get(TOPIC).partitions
        partition.mark_uploaded(SLOTS_MAX)
        await door.settle()
        assert len(wire.answered()) == SLOTS_MAX
        assert wire.is_read_from


async def test_more_frames_in_one_piece_than_may_be_under_way_are_served_in_turn(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        count = SLOTS_MAX + 100
        frames = [encode_request(produce_request(TOPIC, 0, batch_of(b"x")), 9, number, None) for number in range(count)]
        stream = b"".join(bytes(frame) for frame in frames)
        for start in range(0, len(stream), 60_000):
            while not wire.is_read_from:
                await door.settle()
            wire.feed(stream[start : start + 60_000])
        for _ in range(10):
            await door.settle()
        assert wire.answered() == list(range(count))


async def test_client_that_does_not_read_is_not_read_from(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        connection = wire._connection
        connection.pause_writing()
        assert not wire.is_read_from
        connection.resume_writing()
        assert wire.is_read_from
        first = wire.send(ApiVersionsRequest(), 0)
        await turn_of_the_loop(2)
        assert wire.answered() == [first]


@pytest.mark.trap(8)
async def test_client_that_leaves_takes_its_parked_fetch_along(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        wire.send(fetch_request(Wanted(TOPIC), wait_ms=60_000), 12)
        assert door.door.broker.fetch.parked_count == 1
        wire.close()
        await turn_of_the_loop(2)
        assert door.door.broker.fetch.parked_count == 0
        assert not door.peers.connections


async def test_fetch_that_fails_in_an_unforeseen_way_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_door(tmp_path, [TOPIC]) as door:
        wire = door.connect()
        before = wire.send(ApiVersionsRequest(), 0)
        wire.send(fetch_request(Wanted(TOPIC), wait_ms=60_000), 12)
        (parked,) = door.topics.get(TOPIC).partitions[0]._waiters or []
        monkeypatch.setattr(type(parked), "_is_enough", lambda self: 1 // 0)
        parked._deferred.reject(ZeroDivisionError("a bug of ours"))  # type: ignore[attr-defined]
        await turn_of_the_loop(3)
        assert wire.answered() == [before]
        assert wire.is_closed
        monkeypatch.undo()


@pytest.mark.requirement("R4.55")
async def test_request_behind_a_topic_in_the_making_waits_for_it(tmp_path: Path) -> None:
    async with opened_door(tmp_path) as door:
        wire = door.connect()
        sent = [wire.send(produce_request("new", 0, batch_of(b"x")), 9)]
        assert not wire.is_read_from
        while not wire.is_read_from:
            await turn_of_the_loop()
        sent += [wire.send(fetch_request(Wanted("new"), wait_ms=60_000), 12)]
        await door.settle()
        assert wire.answered() == sent
        assert produced(wire, sent[0]).error_code == 0
        assert wire.answer(sent[1], FetchResponse, 12).responses[0].partitions[0].high_watermark == 1


async def test_large_frame_grows_the_buffer_and_gives_it_back(tmp_path: Path) -> None:
    async with opened_door(tmp_path, [TOPIC], config={"max.message.bytes": "2000000"}) as door:
        wire = door.connect()
        sent = wire.send(produce_request(TOPIC, 0, batch_of(b"x" * 1_500_000)), 9)
        assert wire._connection._buffer is None
        await door.settle()
        assert produced(wire, sent).error_code == 0


async def test_answers_shrink_while_many_clients_do_not_read_theirs(tmp_path: Path) -> None:
    """Clients that read slowly have a bound between them: each alone held as much as a fetch may bring."""
    async with opened_door(tmp_path, ["topic"]) as door:
        wire, slow = door.connect(), door.connect()
        for _ in range(4):
            wire.send(produce_request("topic", 0, batch_of(bytes(600_000))), 9)
            await door.settle()
        slow.unsent_bytes = UNSENT_BYTES_MAX
        sizes = []
        for is_read in (False, True):
            slow.unsent_bytes *= not is_read
            door.peers.expire(door.clock.now_ms())
            sent = wire.send(fetch_request(Wanted("topic", bytes_max=50 << 20), max_bytes=50 << 20), 12)
            await turn_of_the_loop(3)
            answer = wire.answer(sent, FetchResponse, 12)
            sizes.append(len(answer.responses[0].partitions[0].records or b""))
        assert sizes[0] < ANSWER_BYTES_MIN < 4 * 600_000 < sizes[1]


async def test_answers_do_not_shrink_for_clients_that_read_theirs(tmp_path: Path) -> None:
    """A door that answers with gigabytes a second has asked its clients what they hold long before the next tick."""
    async with opened_door(tmp_path, ["topic"]) as door:
        wire = door.connect()
        for _ in range(4):
            wire.send(produce_request("topic", 0, batch_of(bytes(600_000))), 9)
            await door.settle()
        door.peers.unsent_bytes += UNSENT_BYTES_MAX
        sent = wire.send(fetch_request(Wanted("topic", bytes_max=50 << 20), max_bytes=50 << 20), 12)
        await turn_of_the_loop(3)
        answer = wire.answer(sent, FetchResponse, 12)
        assert len(answer.responses[0].partitions[0].records or b"") > 4 * 600_000
