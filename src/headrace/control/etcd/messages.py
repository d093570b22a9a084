"""The port's values as etcd's messages, and back. Pure."""

from typing import Final

from headrace.control.etcd import etcd_pb2 as pb
from headrace.control.metastore import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    LeaseId,
    Op,
    OpResult,
    Put,
    PutResult,
    RangeResult,
    Read,
    Relation,
    Target,
    TxnResult,
    WatchEvent,
    prefix,
)
from headrace.errors import Invalid

_RESULTS: Final = {
    Relation.EQUAL: pb.Compare.EQUAL,
    Relation.NOT_EQUAL: pb.Compare.NOT_EQUAL,
    Relation.GREATER: pb.Compare.GREATER,
    Relation.LESS: pb.Compare.LESS,
}
_LAST: Final = prefix("").end
FIRST: Final = b"\0"
"""As a start, in the place of no key at all, which etcd does not take."""
ALL: Final = b"\0"
"""As an end: all there are."""


class Names:
    """Keys as etcd has them: below one prefix, if any, which nobody behind the port sees."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}:".encode() if name else b""

    def key(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def text(self, key: bytes) -> str:
        return key[len(self._prefix) :].decode()

    def bounds(self, keys: KeyRange) -> tuple[bytes, bytes]:
        return self.key(keys.start) or FIRST, self._end if keys.end == _LAST else self.key(keys.end)

    @property
    def _end(self) -> bytes:
        """Behind all keys with the prefix."""
        return self._prefix[:-1] + bytes([self._prefix[-1] + 1]) if self._prefix else ALL


def range_request(
    names: Names, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False, revision: int = 0
) -> pb.RangeRequest:
    start, end = names.bounds(keys)
    return pb.RangeRequest(
        key=start,
        range_end=end,
        limit=limit or 0,
        revision=revision,
        sort_order=pb.RangeRequest.DESCEND if is_descending else pb.RangeRequest.NONE,
    )


def range_result(names: Names, reply: pb.RangeResponse, revision: int) -> RangeResult:
    return RangeResult(tuple([key_value(names, each) for each in reply.kvs]), revision, reply.more)


def key_value(names: Names, found: pb.KeyValue) -> KeyValue:
    return KeyValue(
        names.text(found.key),
        found.value,
        found.create_revision,
        found.mod_revision,
        found.version,
        LeaseId(found.lease),
    )


def compare_of(names: Names, compare: Compare) -> pb.Compare:
    message = pb.Compare(key=names.key(compare.key), result=_RESULTS[compare.relation])
    operand = compare.operand
    if isinstance(operand, bytes) != (compare.target is Target.VALUE):
        raise Invalid(f"compare of {compare.key!r}: {compare.target.value} is not {operand!r}")
    if isinstance(operand, bytes):
        message.target, message.value = pb.Compare.VALUE, operand
        return message
    match compare.target:
        case Target.MOD_REVISION:
            message.target, message.mod_revision = pb.Compare.MOD, operand
        case Target.CREATE_REVISION:
            message.target, message.create_revision = pb.Compare.CREATE, operand
        case _:
            message.target, message.version = pb.Compare.VERSION, operand
    return message


def request_op(names: Names, op: Op) -> pb.RequestOp:
    match op:
        case Put():
            return pb.RequestOp(request_put=pb.PutRequest(key=names.key(op.key), value=op.value, lease=op.lease))
        case Delete():
            start, end = names.bounds(op.keys)
            return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=start, range_end=end))
        case Read():
            request = range_request(names, op.keys, limit=op.limit, is_descending=op.is_descending)
            return pb.RequestOp(request_range=request)


def txn_result(names: Names, reply: pb.TxnResponse) -> TxnResult:
    revision = reply.header.revision
    return TxnResult(reply.succeeded, revision, tuple([_result(names, each, revision) for each in reply.responses]))


def _result(names: Names, reply: pb.ResponseOp, revision: int) -> OpResult:
    match reply.WhichOneof("response"):
        case "response_put":
            return PutResult()
        case "response_delete_range":
            return DeleteResult(reply.response_delete_range.deleted)
        case _:
            return range_result(names, reply.response_range, revision)


def event_of(names: Names, event: pb.Event) -> WatchEvent:
    value = event.kv.value if event.type == pb.Event.PUT else None
    return WatchEvent(names.text(event.kv.key), value, event.kv.mod_revision)
