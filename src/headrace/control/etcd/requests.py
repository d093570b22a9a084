"""What arrives at a server of etcd's API as the port's values, and its answers. The other direction of `messages`. Pure."""

from typing import Final

from headrace.control.etcd import etcd_pb2 as pb
from headrace.control.etcd.messages import ALL, FIRST
from headrace.control.metastore import (
    Changes,
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
    only,
)
from headrace.errors import Invalid

_RELATIONS: Final = {
    pb.Compare.EQUAL: Relation.EQUAL,
    pb.Compare.NOT_EQUAL: Relation.NOT_EQUAL,
    pb.Compare.GREATER: Relation.GREATER,
    pb.Compare.LESS: Relation.LESS,
}


def range_in(request: pb.RangeRequest) -> Read:
    is_descending = request.sort_order == pb.RangeRequest.DESCEND
    return Read(_keys(request.key, request.range_end), request.limit or None, is_descending)


def compare_in(compare: pb.Compare) -> Compare:
    relation = _RELATIONS.get(compare.result)
    if relation is None:
        raise Invalid(f"comparison {compare.result} is not known")
    key = _text(compare.key)
    match compare.target:
        case pb.Compare.VERSION:
            return Compare(key, Target.VERSION, relation, compare.version)
        case pb.Compare.CREATE:
            return Compare(key, Target.CREATE_REVISION, relation, compare.create_revision)
        case pb.Compare.MOD:
            return Compare(key, Target.MOD_REVISION, relation, compare.mod_revision)
        case pb.Compare.VALUE:
            return Compare(key, Target.VALUE, relation, compare.value)
        case target:
            raise Invalid(f"comparison of {target} is not known")


def op_in(op: pb.RequestOp) -> Op:
    match op.WhichOneof("request"):
        case "request_put":
            put = op.request_put
            return Put(_text(put.key), put.value, LeaseId(put.lease))
        case "request_delete_range":
            return Delete(_keys(op.request_delete_range.key, op.request_delete_range.range_end))
        case "request_range":
            return range_in(op.request_range)
        case _:
            raise Invalid("an operation of a kind that is not known")


def range_reply(result: RangeResult, *, count: int | None = None) -> pb.RangeResponse:
    return pb.RangeResponse(
        header=pb.ResponseHeader(revision=result.revision),
        kvs=[_key_value(item) for item in result.items],
        more=result.has_more,
        count=len(result.items) if count is None else count,
    )


def txn_reply(result: TxnResult) -> pb.TxnResponse:
    return pb.TxnResponse(
        header=pb.ResponseHeader(revision=result.revision),
        succeeded=result.is_success,
        responses=[_op_reply(each) for each in result.results],
    )


def changes_reply(changes: Changes) -> pb.WatchResponse:
    return pb.WatchResponse(
        header=pb.ResponseHeader(revision=changes.revision),
        events=[
            pb.Event(
                type=pb.Event.DELETE if event.value is None else pb.Event.PUT,
                kv=pb.KeyValue(key=event.key.encode(), value=event.value or b"", mod_revision=event.revision),
            )
            for event in changes.events
        ],
    )


def _op_reply(result: OpResult) -> pb.ResponseOp:
    match result:
        case PutResult():
            return pb.ResponseOp(response_put=pb.PutResponse())
        case DeleteResult():
            return pb.ResponseOp(response_delete_range=pb.DeleteRangeResponse(deleted=result.deleted_count))
        case RangeResult():
            return pb.ResponseOp(response_range=range_reply(result))


def _key_value(item: KeyValue) -> pb.KeyValue:
    return pb.KeyValue(
        key=item.key.encode(),
        value=item.value,
        create_revision=item.create_revision,
        mod_revision=item.mod_revision,
        version=item.version,
        lease=item.lease,
    )


def _keys(start: bytes, end: bytes) -> KeyRange:
    if not end:
        return only(_text(start))
    first = "" if start == FIRST else _text(start)
    return KeyRange(first, chr(0x10FFFF) if end == ALL else _text(end))


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"keys are text in UTF-8, and {key!r} is not") from error
