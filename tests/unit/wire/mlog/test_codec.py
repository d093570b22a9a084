"""Every mlog message survives a round trip, and Go's leniency is ours on input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedRequest
from headrace.wire.mlog import messages as m
from headrace.wire.mlog.codec import MESSAGES, decode, decode_frame, encode, frame_reader
from headrace.wire.mlog.codes import MessageType

U64_MAX = 2**64 - 1


@given(value=st.binary(max_size=300), offset=st.integers(min_value=0, max_value=U64_MAX))
def test_entries_round_trip(value: bytes, offset: int) -> None:
    response = m.FetchBatchResponse(Entries=(m.LogEntry(Offset=offset, Value=value),))
    assert decode_frame(encode(response)) == (MessageType.FETCH_BATCH_RESP, response)


@given(data=st.binary(max_size=60))
def test_decoding_rubbish_raises_only_our_errors(data: bytes) -> None:
    for message_type in MESSAGES:
        try:
            decode(message_type, data)
        except MalformedRequest:
            continue


def test_a_tombstone_has_a_null_value() -> None:
    frame = encode(m.FetchResponse(Entry=m.LogEntry(Offset=3, Value=None)))
    assert frame[6:] == b'{"Entry":{"Offset":3,"Value":null}}'


@pytest.mark.parametrize(
    ("message_type", "payload", "expected"),
    [
        (2, b'{"topic":"a","VALUE":"aGk=","aCKS":2}', m.ProduceRequest(Topic="a", Value=b"hi", Acks=2)),
        (2, b"{}", m.ProduceRequest()),
        (2, b"null", m.ProduceRequest()),
        (2, b'{"Topic":null,"Value":null,"Acks":null}', m.ProduceRequest()),
        (2, b'{"Topic":"a","Extra":{"deep":[1,2]}}', m.ProduceRequest(Topic="a")),
        (2, b'{"Topic":"a","Value":"aG\\nk\\r="}', m.ProduceRequest(Topic="a", Value=b"hi")),
        (4, b'{"Topic":"a","Values":null}', m.ProduceBatchRequest(Topic="a")),
        (4, b'{"values":["aGk=",null,"aG\\nk="]}', m.ProduceBatchRequest(Values=(b"hi", b"", b"hi"))),
        (7, b'{"entry":{"offset":5,"value":"aGk="}}', m.FetchResponse(Entry=m.LogEntry(Offset=5, Value=b"hi"))),
        (7, b'{"Entry":null}', m.FetchResponse()),
        (9, b'{"entries":[{"offset":5}]}', m.FetchBatchResponse(Entries=(m.LogEntry(Offset=5),))),
        (17, b'{"ReplicaNodeIds":null}', m.CreateTopicResponse()),
        (20, b'{"Code":3,"Message":"no"}', m.RPCErrorResponse(code=3, message="no")),
        (
            26,
            b'{"topics":[{"name":"a","replicas":[{"nodeid":"n","isisr":true}]}]}',
            m.ListTopicsResponse(Topics=(m.TopicInfo(Name="a", Replicas=(m.ReplicaInfo(NodeID="n", IsISR=True),)),)),
        ),
    ],
)
def test_what_go_would_accept_is_accepted(message_type: int, payload: bytes, expected: m.Message) -> None:
    assert decode(message_type, payload) == expected


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b'"x"', b'{"Topic":1}', b'{"Acks":2147483648}', b'{"Value":"?"}', b'{"Values":{}}x'],
)
def test_what_go_would_refuse_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode(2, payload)


def test_frames_carry_their_type() -> None:
    reader = frame_reader()
    reader.receive(encode(m.ListTopicsRequest()) + encode(m.FindRaftLeaderRequest()))
    headers = []
    while (frame := reader.next_frame()) is not None:
        headers.append(frame.header)
    assert headers == [(25, 2), (23, 2)]
