"""mlog's messages, one struct each. Field names are the Go struct's, since Go writes them to JSON verbatim.

Every field has Go's zero value as its default. Unknown fields are forbidden only so that the fast decoder
notices names in another case; `codec.decode` then reads the payload again as leniently as Go does.
"""

from typing import Annotated

from msgspec import Meta, Struct

I32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
I64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U64 = Annotated[int, Meta(ge=0)]


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What all messages share: how they are decoded."""


class LogEntry(Message, frozen=True, kw_only=True, gc=False):
    Offset: U64 = 0
    Value: bytes | None = b""
    """None is a record without a value: a Kafka tombstone."""


class ReplicateRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Offset: U64 = 0
    """The replica's log end: where it wants to go on."""
    BatchSize: U32 = 0
    ReplicaNodeID: str = ""


class ReplicateResponse(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    RawChunk: bytes = b""
    """A replication batch, or nothing."""
    EndOfStream: bool = False
    LeaderLEO: I64 = 0
    """Set in the last frame of a stream."""


class ProduceRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Value: bytes = b""
    Acks: I32 = 0


class ProduceResponse(Message, frozen=True, kw_only=True, gc=False):
    Offset: U64 = 0


class ProduceBatchRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Values: tuple[bytes, ...] = ()
    Acks: I32 = 0


class ProduceBatchResponse(Message, frozen=True, kw_only=True, gc=False):
    BaseOffset: U64 = 0
    LastOffset: U64 = 0
    Count: U32 = 0


class FetchRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Id: str = ""
    Offset: U64 = 0
    ReplicaNodeID: str = ""


class FetchResponse(Message, frozen=True, kw_only=True, gc=False):
    Entry: LogEntry | None = None


class FetchBatchRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Id: str = ""
    Offset: U64 = 0
    MaxCount: U32 = 0
    ReplicaNodeID: str = ""


class FetchBatchResponse(Message, frozen=True, kw_only=True, gc=False):
    Entries: tuple[LogEntry, ...] = ()


class FetchStreamRequest(FetchRequest, frozen=True, kw_only=True, gc=False):
    """A FetchRequest under another message type: the class decides the type on the wire."""


class FetchStreamResponse(FetchResponse, frozen=True, kw_only=True, gc=False):
    """A FetchResponse under another message type."""


class CommitOffsetRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Id: str = ""
    Offset: U64 = 0


class CommitOffsetResponse(Message, frozen=True, kw_only=True, gc=False):
    Success: bool = False


class FetchOffsetRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    Id: str = ""


class FetchOffsetResponse(Message, frozen=True, kw_only=True, gc=False):
    Offset: U64 = 0


class CreateTopicRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    ReplicaCount: U32 = 0
    """All copies, the leader's among them."""
    DesignatedLeaderNodeID: str = ""


class CreateTopicResponse(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    ReplicaNodeIds: tuple[str, ...] = ()


class DeleteTopicRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""


class DeleteTopicResponse(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""


class RPCErrorResponse(Message, frozen=True, kw_only=True, gc=False):
    code: I32 = 0
    message: str = ""


class FindTopicLeaderRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""


class FindTopicLeaderResponse(Message, frozen=True, kw_only=True, gc=False):
    LeaderAddr: str = ""


class FindRaftLeaderRequest(Message, frozen=True, kw_only=True, gc=False):
    pass


class FindRaftLeaderResponse(Message, frozen=True, kw_only=True, gc=False):
    RaftLeaderAddr: str = ""


class ListTopicsRequest(Message, frozen=True, kw_only=True, gc=False):
    pass


class ReplicaInfo(Message, frozen=True, kw_only=True, gc=False):
    NodeID: str = ""
    IsISR: bool = False
    LEO: I64 = 0


class TopicInfo(Message, frozen=True, kw_only=True, gc=False):
    Name: str = ""
    LeaderNodeID: str = ""
    LeaderEpoch: I64 = 0
    Replicas: tuple[ReplicaInfo, ...] = ()


class ListTopicsResponse(Message, frozen=True, kw_only=True, gc=False):
    Topics: tuple[TopicInfo, ...] = ()


class ApplyIsrUpdateEventRequest(Message, frozen=True, kw_only=True, gc=False):
    Topic: str = ""
    ReplicaNodeID: str = ""
    Isr: bool = False


class ApplyIsrUpdateEventResponse(Message, frozen=True, kw_only=True, gc=False):
    pass
