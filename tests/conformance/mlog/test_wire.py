"""mlog as bytes: frames, the 29 types, their JSON, error codes, reconnection, and the replication batch."""

import asyncio
import errno
import json
import socket
import struct

import pytest

from headrace.errors import CorruptBatch, MalformedRequest, TooLarge
from headrace.wire.framing import IncompleteFrame
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import (
    MESSAGES,
    FrameTooLarge,
    UnknownMessageType,
    decode,
    decode_frame,
    encode,
    encode_frame,
    frame_reader,
)
from headrace.wire.mlog.codes import FRAME_BYTES_MAX, FRAME_HEADER_SIZE, AckMode, ErrorCode, MessageType
from headrace.wire.mlog.errors import ConnectionClosed, RPCError, should_reconnect
from headrace.wire.mlog.replication_batch import (
    ReplicationBatchCRC,
    ReplicationRecord,
    UnexpectedEnd,
    decode_replication_batch,
    decode_replication_batch_strictly,
    encode_replication_batch,
)

U64_MAX = 2**64 - 1

SAMPLES: list[m.Message] = [
    m.ReplicateRequest(Topic="t", Offset=5, BatchSize=100, ReplicaNodeID="n2"),
    m.ReplicateResponse(Topic="t", RawChunk=b"\x00\x01", EndOfStream=True, LeaderLEO=9),
    m.ProduceRequest(Topic="t", Value=b"v", Acks=1),
    m.ProduceResponse(Offset=U64_MAX),
    m.ProduceBatchRequest(Topic="t", Values=(b"a", b""), Acks=2),
    m.ProduceBatchResponse(BaseOffset=4, LastOffset=5, Count=2),
    m.FetchRequest(Topic="t", Id="c", Offset=2, ReplicaNodeID="n"),
    m.FetchResponse(Entry=m.LogEntry(Offset=2, Value=b"v")),
    m.FetchBatchRequest(Topic="t", Id="c", Offset=2, MaxCount=10, ReplicaNodeID=""),
    m.FetchBatchResponse(Entries=(m.LogEntry(Offset=2, Value=b"v"),)),
    m.FetchStreamRequest(Topic="t", Id="c", Offset=2),
    m.FetchStreamResponse(Entry=m.LogEntry(Offset=2, Value=b"v")),
    m.CommitOffsetRequest(Topic="t", Id="c", Offset=3),
    m.CommitOffsetResponse(Success=True),
    m.FetchOffsetRequest(Topic="t", Id="c"),
    m.FetchOffsetResponse(Offset=3),
    m.CreateTopicRequest(Topic="t", ReplicaCount=3, DesignatedLeaderNodeID="n1"),
    m.CreateTopicResponse(Topic="t", ReplicaNodeIds=("n1", "n2")),
    m.DeleteTopicRequest(Topic="t"),
    m.DeleteTopicResponse(Topic="t"),
    m.RPCErrorResponse(code=3, message="topic not found"),
    m.FindTopicLeaderRequest(Topic="t"),
    m.FindTopicLeaderResponse(LeaderAddr="h:9095"),
    m.FindRaftLeaderRequest(),
    m.FindRaftLeaderResponse(RaftLeaderAddr="h:9095"),
    m.ListTopicsRequest(),
    m.ListTopicsResponse(
        Topics=(
            m.TopicInfo(
                Name="t",
                LeaderNodeID="n1",
                LeaderEpoch=2,
                Replicas=(m.ReplicaInfo(NodeID="n1", IsISR=True, LEO=7),),
            ),
        )
    ),
    m.ApplyIsrUpdateEventRequest(Topic="t", ReplicaNodeID="n2", Isr=True),
    m.ApplyIsrUpdateEventResponse(),
]


def shown(message: m.Message) -> object:
    return json.loads(encode(message)[FRAME_HEADER_SIZE:])


@pytest.mark.requirement("R1.1", "R1.2", "R1.8")
def test_a_frame_is_type_size_payload() -> None:
    frame = encode(m.FindTopicLeaderRequest(Topic="orders"))
    assert frame == b"\x00\x15" + b"\x00\x00\x00\x12" + b'{"Topic":"orders"}'
    assert FRAME_HEADER_SIZE == 6


@pytest.mark.requirement("R1.3", "R1.4", "R1.5")
def test_frame_limits() -> None:
    assert FRAME_BYTES_MAX == 4_194_304
    assert len(encode_frame(2, bytes(FRAME_BYTES_MAX))) == FRAME_BYTES_MAX + 6
    with pytest.raises(FrameTooLarge, match=r"^protocol: frame exceeds max size$"):
        encode_frame(2, bytes(FRAME_BYTES_MAX + 1))
    reader = frame_reader()
    reader.receive(struct.pack(">HI", 2, FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX))
    assert reader.next_frame() is not None
    reader.receive(struct.pack(">HI", 2, FRAME_BYTES_MAX + 1))
    with pytest.raises(TooLarge):
        reader.next_frame()


@pytest.mark.requirement("R1.6")
def test_short_reads_are_assembled_and_an_early_end_is_an_error() -> None:
    frame = encode(SAMPLES[2])
    for cut in range(1, len(frame)):
        reader = frame_reader()
        reader.receive(frame[:cut])
        assert reader.next_frame() is None
        with pytest.raises(IncompleteFrame):
            reader.finish()
        reader.receive(frame[cut:])
        assert reader.next_frame() is not None
        reader.finish()


@pytest.mark.requirement("R1.7")
def test_header_and_payload_are_one_piece() -> None:
    assert isinstance(encode(SAMPLES[2]), bytes)


@pytest.mark.requirement(*[f"R1.{n}" for n in range(9, 24)])
def test_message_types_are_numbered_from_zero() -> None:
    names = [
        "ReplicateStream",
        "ReplicateResp",
        "Produce",
        "ProduceResp",
        "ProduceBatch",
        "ProduceBatchResp",
        "Fetch",
        "FetchResp",
        "FetchBatch",
        "FetchBatchResp",
        "FetchStream",
        "FetchStreamResp",
        "CommitOffset",
        "CommitOffsetResp",
        "FetchOffset",
        "FetchOffsetResp",
        "CreateTopic",
        "CreateTopicResp",
        "DeleteTopic",
        "DeleteTopicResp",
        "RPCError",
        "FindTopicLeader",
        "FindTopicLeaderResp",
        "FindRaftLeader",
        "FindRaftLeaderResp",
        "ListTopics",
        "ListTopicsResp",
        "ApplyIsrUpdateEvent",
        "ApplyIsrUpdateEventResp",
    ]
    assert [t.name.replace("_", "") for t in MessageType] == [name.upper() for name in names]
    assert [t.value for t in MessageType] == list(range(29))


@pytest.mark.requirement("R1.24")
def test_unknown_types_have_the_documents_text() -> None:
    with pytest.raises(UnknownMessageType, match=r"^protocol: can not encode type: 29$"):
        decode(29, b"{}")
    with pytest.raises(UnknownMessageType, match=r"^protocol: can not encode type: "):
        encode(m.LogEntry())


@pytest.mark.requirement("R1.80", "R1.81", "R1.82")
@pytest.mark.parametrize(("number", "message"), list(enumerate(SAMPLES)), ids=lambda x: str(x)[:30])
def test_every_type_round_trips(number: int, message: m.Message) -> None:
    assert decode_frame(encode(message)) == (MessageType(number), message)
    assert type(decode_frame(encode(message)).message) is type(message)


@pytest.mark.requirement("R1.83")
def test_one_table_is_the_whole_codec() -> None:
    assert list(MESSAGES) == list(MessageType)
    assert len(set(MESSAGES.values())) == 29


@pytest.mark.requirement(*[f"R1.{n}" for n in range(25, 47)])
def test_json_shapes_are_gos() -> None:
    expected = {
        m.ReplicateRequest: {"Topic": "t", "Offset": 5, "BatchSize": 100, "ReplicaNodeID": "n2"},
        m.ProduceRequest: {"Topic": "t", "Value": "dg==", "Acks": 1},
        m.ProduceResponse: {"Offset": U64_MAX},
        m.ProduceBatchRequest: {"Topic": "t", "Values": ["YQ==", ""], "Acks": 2},
        m.ProduceBatchResponse: {"BaseOffset": 4, "LastOffset": 5, "Count": 2},
        m.FetchRequest: {"Topic": "t", "Id": "c", "Offset": 2, "ReplicaNodeID": "n"},
        m.FetchResponse: {"Entry": {"Offset": 2, "Value": "dg=="}},
        m.FetchBatchRequest: {"Topic": "t", "Id": "c", "Offset": 2, "MaxCount": 10, "ReplicaNodeID": ""},
        m.FetchBatchResponse: {"Entries": [{"Offset": 2, "Value": "dg=="}]},
        m.CommitOffsetRequest: {"Topic": "t", "Id": "c", "Offset": 3},
        m.CommitOffsetResponse: {"Success": True},
        m.FetchOffsetRequest: {"Topic": "t", "Id": "c"},
        m.FetchOffsetResponse: {"Offset": 3},
        m.CreateTopicRequest: {"Topic": "t", "ReplicaCount": 3, "DesignatedLeaderNodeID": "n1"},
        m.CreateTopicResponse: {"Topic": "t", "ReplicaNodeIds": ["n1", "n2"]},
        m.DeleteTopicRequest: {"Topic": "t"},
        m.DeleteTopicResponse: {"Topic": "t"},
        m.RPCErrorResponse: {"code": 3, "message": "topic not found"},
        m.FindTopicLeaderRequest: {"Topic": "t"},
        m.FindTopicLeaderResponse: {"LeaderAddr": "h:9095"},
        m.FindRaftLeaderRequest: {},
        m.FindRaftLeaderResponse: {"RaftLeaderAddr": "h:9095"},
        m.ListTopicsRequest: {},
        m.ListTopicsResponse: {
            "Topics": [
                {
                    "Name": "t",
                    "LeaderNodeID": "n1",
                    "LeaderEpoch": 2,
                    "Replicas": [{"NodeID": "n1", "IsISR": True, "LEO": 7}],
                }
            ]
        },
        m.ApplyIsrUpdateEventRequest: {"Topic": "t", "ReplicaNodeID": "n2", "Isr": True},
        m.ApplyIsrUpdateEventResponse: {},
    }
    for sample in SAMPLES:
        if type(sample) in expected:
            assert shown(sample) == expected[type(sample)]
    assert [(mode.name, mode.value) for mode in AckMode] == [("NONE", 0), ("LEADER", 1), ("ALL", 2)]


@pytest.mark.requirement("R1.47")
def test_json_is_read_as_leniently_as_go_reads_it() -> None:
    assert decode(2, b'{"topic":"t","VALUE":"dg==","New":[1]}') == m.ProduceRequest(Topic="t", Value=b"v")
    assert decode(4, b'{"Topic":"t","Values":null}') == m.ProduceBatchRequest(Topic="t")
    assert decode(12, b"{}") == m.CommitOffsetRequest()


@pytest.mark.requirement("R1.48")
@pytest.mark.parametrize("offset", [2**53, 2**53 + 1, 2**63, U64_MAX])
def test_offsets_keep_64_bits(offset: int) -> None:
    frame = encode(m.ProduceResponse(Offset=offset))
    assert str(offset).encode() in frame
    assert decode_frame(frame).message == m.ProduceResponse(Offset=offset)


@pytest.mark.requirement("R1.66", "R1.67", "R1.68", "R1.69")
def test_error_codes_are_numbered_from_zero() -> None:
    names = [
        "Unknown",
        "TopicRequired",
        "TopicNameRequired",
        "TopicNotFound",
        "NotTopicLeader",
        "ValuesRequired",
        "ReadOffset",
        "CommitOffset",
        "RecoverOffsets",
        "ReplicaCountInvalid",
        "LeaderAddrRequired",
        "RaftLeaderUnavailable",
        "TopicExists",
        "NotEnoughNodes",
        "CannotReachLeader",
        "InvalidAckMode",
        "TimeoutCatchUp",
    ]
    assert [c.name.replace("_", "") for c in ErrorCode] == [name.upper() for name in names]
    assert [c.value for c in ErrorCode] == list(range(17))


@pytest.mark.requirement("R1.71")
def test_the_text_of_an_rpc_error_is_its_message() -> None:
    error = RPCError.of(m.RPCErrorResponse(code=12, message="topic orders exists"))
    assert (error.code, error.message, str(error)) == (12, "topic orders exists", "topic orders exists")


@pytest.mark.requirement("R1.73", "R1.74", "R1.75", "R1.76", "R1.77", "R1.78", "R1.79")
def test_when_to_reconnect() -> None:
    assert not should_reconnect(None)
    for code in ErrorCode:
        assert should_reconnect(RPCError(code, "x")) is (code in (3, 4, 11))
    yes: list[BaseException] = [
        EOFError(),
        asyncio.IncompleteReadError(b"", 4),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        BrokenPipeError(errno.EPIPE, "pipe"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        TimeoutError(),
        OSError(errno.EHOSTUNREACH, "unreachable"),
        OSError(errno.ENETUNREACH, "unreachable"),
        socket.gaierror(socket.EAI_NONAME, "unknown name"),
        ConnectionClosed("closed"),
        OSError(errno.EBADF, "closed"),
    ]
    assert all(should_reconnect(error) for error in yes)
    no: list[BaseException] = [ValueError("x"), MalformedRequest("x"), FileNotFoundError(errno.ENOENT, "x")]
    assert not any(should_reconnect(error) for error in no)
    wrapped = RuntimeError("could not fetch")
    wrapped.__cause__ = RPCError(4, "not the leader")
    assert should_reconnect(wrapped)


GOLDEN = bytes.fromhex(
    "00000000000000050000002200000000074e035e000000000100000000000000050000000568656c6c6f"
    "000000000000000600000005776f726c64"
)
GOLDEN_RECORDS = [ReplicationRecord(5, b"hello"), ReplicationRecord(6, b"world")]


@pytest.mark.requirement("R1.96", "R1.97", "R1.98", "R1.99", "R1.100", "R1.101", "R1.108")
def test_the_golden_replication_batch() -> None:
    assert encode_replication_batch(GOLDEN_RECORDS) == GOLDEN
    assert decode_replication_batch(GOLDEN) == GOLDEN_RECORDS
    assert decode_replication_batch_strictly(GOLDEN).records == GOLDEN_RECORDS


@pytest.mark.requirement("R1.102")
def test_no_records_make_no_batch() -> None:
    assert encode_replication_batch([]) is None


@pytest.mark.requirement("R1.103", "R1.104")
@pytest.mark.parametrize("data", [b"", GOLDEN[:24], GOLDEN[:-1], GOLDEN + b"\0"])
def test_a_wrong_length_is_an_unexpected_end(data: bytes) -> None:
    with pytest.raises(UnexpectedEnd, match="unexpected EOF"):
        decode_replication_batch(data)


@pytest.mark.requirement("R1.105")
def test_a_flipped_bit_is_a_crc_mismatch() -> None:
    with pytest.raises(ReplicationBatchCRC, match=r"^protocol: replication batch CRC mismatch$"):
        decode_replication_batch(GOLDEN[:-1] + b"x")


@pytest.mark.requirement("R1.106")
def test_a_bad_size_ends_the_list_and_the_strict_decoder_refuses_it() -> None:
    import zlib

    section = struct.pack(">qi", 5, 1) + b"a" + struct.pack(">qi", 6, -1)
    data = struct.pack(">qiiIBi", 5, len(section), 0, zlib.crc32(section), 0, 1) + section
    assert decode_replication_batch(data) == [ReplicationRecord(5, b"a")]
    with pytest.raises(CorruptBatch):
        decode_replication_batch_strictly(data)


@pytest.mark.requirement("R1.107")
def test_offsets_may_have_holes() -> None:
    records = [ReplicationRecord(5, b"a"), ReplicationRecord(50, b"b")]
    encoded = encode_replication_batch(records)
    assert encoded is not None
    assert decode_replication_batch(encoded) == records
