"""`EtcdMetastore`: the port, word for word, in an etcd.

The server's limits are found out by asking: an operator may have raised them. What is asked for that only reads.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from headrace.control.etcd import etcd_pb2 as pb
from headrace.control.etcd.connection import CALL_S, EtcdConnection
from headrace.control.etcd.messages import (
    Names,
    compare_of,
    key_value,
    range_request,
    range_result,
    request_op,
    txn_result,
)
from headrace.control.etcd.settings import EtcdSettings
from headrace.control.etcd.watch import PROGRESS_S, EtcdWatch
from headrace.control.metastore import (
    PAGE_KEYS,
    Changes,
    Compare,
    KeyRange,
    KeyValue,
    Lease,
    LeaseId,
    Op,
    RangeResult,
    Read,
    TxnLimits,
    TxnResult,
    check_lease_time,
    check_size,
    only,
)
from headrace.errors import LeaseNotFound, RevisionCompacted, TooLarge, Unavailable

_OPS_TRIED: Final = (8192, 1024, 512, 128)
_BYTES_MAX: Final = 1024 * 1024
"""Two thirds of what a server takes unless told otherwise, for it counts what it adds itself."""
_RANGE: Final = "/etcdserverpb.KV/Range"
_TXN: Final = "/etcdserverpb.KV/Txn"
_COMPACT: Final = "/etcdserverpb.KV/Compact"
_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"


class EtcdMetastore:
    """Create with `open`, on the loop that will use it; `close` it there."""

    def __init__(self, connection: EtcdConnection, names: Names, limits: TxnLimits, *, progress_s: float) -> None:
        self._connection = connection
        self._names = names
        self._limits = limits
        self._progress_s = progress_s

    @classmethod
    async def open(
        cls, settings: EtcdSettings, *, call_s: float = CALL_S, progress_s: float = PROGRESS_S
    ) -> "EtcdMetastore":
        """Raises `Unavailable` when no member answers, `Invalid` when etcd does not let us in."""
        connection = EtcdConnection(settings, call_s=call_s)
        names = Names(settings.prefix)
        try:
            ops_max = await _operations_taken(connection, names)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, names, TxnLimits(ops_max=ops_max, bytes_max=_BYTES_MAX), progress_s=progress_s)

    @property
    def txn_limits(self) -> TxnLimits:
        return self._limits

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._connection.read(_RANGE, pb.RangeRequest(key=self._names.key(key)), pb.RangeResponse)
        return key_value(self._names, reply.kvs[0]) if reply.kvs else None

    async def range(self, keys: KeyRange, *, limit: int | None = None, is_descending: bool = False) -> RangeResult:
        return await self._range(range_request(self._names, keys, limit=limit, is_descending=is_descending))

    async def pages(self, keys: KeyRange, *, limit: int = PAGE_KEYS) -> AsyncIterator[RangeResult]:
        page = await self._range(range_request(self._names, keys, limit=limit))
        revision = page.revision
        while True:
            yield RangeResult(page.items, revision, page.has_more)
            if not page.has_more:
                return
            rest = KeyRange(only(page.items[-1].key).end, keys.end)
            page = await self._range(range_request(self._names, rest, limit=limit, revision=revision))

    async def txn(self, compares: Sequence[Compare], then_ops: Sequence[Op], else_ops: Sequence[Op] = ()) -> TxnResult:
        check_size(self._limits, compares, then_ops, else_ops)
        names = self._names
        request = pb.TxnRequest(
            compare=[compare_of(names, each) for each in compares],
            success=[request_op(names, each) for each in then_ops],
            failure=[request_op(names, each) for each in else_ops],
        )
        is_reading = all(isinstance(op, Read) for op in (*then_ops, *else_ops))
        call = self._connection.read if is_reading else self._connection.write
        return txn_result(names, await call(_TXN, request, pb.TxnResponse))

    async def grant_lease(self, ttl_ms: int) -> Lease:
        check_lease_time(ttl_ms)
        request = pb.LeaseGrantRequest(TTL=-(-ttl_ms // 1000))
        reply = await self._connection.write(_GRANT, request, pb.LeaseGrantResponse)
        return Lease(LeaseId(reply.ID), reply.TTL * 1000)

    async def keep_alive(self, lease: LeaseId) -> int:
        reply = await self._connection.ask_once(
            _KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease), pb.LeaseKeepAliveResponse
        )
        if reply.TTL <= 0:
            raise LeaseNotFound(f"lease {lease} has run out or never was")
        return int(reply.TTL) * 1000

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._connection.write(_REVOKE, pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)

    def watch(self, keys: KeyRange, *, from_revision: int, without: str = "") -> AsyncIterator[Changes]:
        self._connection.check_open()
        if from_revision < 1:
            raise RevisionCompacted("etcd counts its revisions from 1")
        return EtcdWatch(self._connection, self._names, keys, from_revision, without, progress_s=self._progress_s)

    async def compact(self, revision: int) -> None:
        """Forget what was before `revision`: watchers and pages of that past are told so."""
        await self._connection.write(_COMPACT, pb.CompactionRequest(revision=revision), pb.CompactionResponse)

    async def close(self) -> None:
        if not self._connection.is_closed:
            await self._connection.close()

    async def _range(self, request: pb.RangeRequest) -> RangeResult:
        reply = await self._connection.read(_RANGE, request, pb.RangeResponse)
        return range_result(self._names, reply, reply.header.revision)


async def _operations_taken(connection: EtcdConnection, names: Names) -> int:
    read = request_op(names, Read(only("/")))
    for count in _OPS_TRIED:
        try:
            await connection.read(_TXN, pb.TxnRequest(success=[read] * count), pb.TxnResponse)
        except TooLarge:
            continue
        return count
    raise Unavailable(f"etcd takes no transaction of {_OPS_TRIED[-1]} operations; raise its --max-txn-ops")
