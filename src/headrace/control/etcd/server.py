"""A metastore served to others by the part of etcd's API that `EtcdMetastore` speaks.

So that brokers reach their controllers as controllers reach an etcd: one client, one contract, and etcd's own tools to look with.
What a store refuses is answered with the status that etcd gives it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from headrace.control.etcd import etcd_pb2 as pb
from headrace.control.etcd.requests import changes_reply, compare_in, op_in, range_in, range_reply, txn_reply
from headrace.control.metastore import Changes, KeyRange, LeaseId, Metastore, RangeResult
from headrace.errors import (
    Conflict,
    HeadraceError,
    Invalid,
    LeaseNotFound,
    Overloaded,
    RevisionCompacted,
    TooLarge,
    Unavailable,
)

_STATUS: Final[tuple[tuple[type[HeadraceError], grpc.StatusCode, str], ...]] = (
    (TooLarge, grpc.StatusCode.INVALID_ARGUMENT, "request is too large"),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT, "invalid request"),
    (LeaseNotFound, grpc.StatusCode.NOT_FOUND, "requested lease not found"),
    (RevisionCompacted, grpc.StatusCode.OUT_OF_RANGE, "required revision has been compacted"),
    (Conflict, grpc.StatusCode.ALREADY_EXISTS, ""),
    (Overloaded, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests"),
    (Unavailable, grpc.StatusCode.UNAVAILABLE, "not available"),
)
"""The last is the word of etcd, by which its clients know the refusal; empty where the status says it all."""
_PAGED_MAX: Final = 64
"""Ranges that are being read in pages and are kept as they were; who comes for one that is gone begins anew."""
_STOP_S: Final = 1.0
_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
Context: TypeAlias = grpc.aio.ServicerContext


class EtcdServer:
    def __init__(self, store: Metastore, *, others: Sequence[grpc.GenericRpcHandler] = ()) -> None:
        """`others` are served on the same port."""
        self._store = store
        self._others = others
        self._paged: OrderedDict[tuple[int, str], RangeResult] = OrderedDict()
        """By revision and end: what was left of a range when its last page was read."""
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen at `host:port`; gives the port. Raises `Unavailable` where nobody can listen there."""
        options = [
            ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
            # Two processes at one port would each have half of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((*self._handlers(), *self._others))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise Unavailable(f"nobody can listen at {address}") from error
        await server.start()
        self._server = server
        return int(port)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(_STOP_S)

    def _handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        def one(serve: Callable[[Any], Awaitable[Any]], request: type[Any]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(answering(serve), request.FromString, serialize)

        def many(
            serve: Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]], request: type[Any]
        ) -> grpc.RpcMethodHandler:
            return grpc.stream_stream_rpc_method_handler(_streaming(serve), request.FromString, serialize)

        services = {
            "KV": {"Range": one(self._range, pb.RangeRequest), "Txn": one(self._txn, pb.TxnRequest)},
            "Watch": {"Watch": many(self._watch, pb.WatchRequest)},
            "Lease": {
                "LeaseGrant": one(self._grant, pb.LeaseGrantRequest),
                "LeaseRevoke": one(self._revoke, pb.LeaseRevokeRequest),
                "LeaseKeepAlive": many(self._keep_alive, pb.LeaseKeepAliveRequest),
            },
        }
        return tuple(
            grpc.method_handlers_generic_handler(f"etcdserverpb.{name}", methods) for name, methods in services.items()
        )

    # -- keys ----------------------------------------------------------------------------------------------------

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        if request.revision:
            return range_reply(self._page(request))
        read = range_in(request)
        # One that is cut short may be gone on with at the same revision: the store itself has no past.
        whole = await self._store.range(read.keys, is_descending=read.is_descending)
        page, rest = _cut(whole, read.limit)
        if rest is not None and not read.is_descending:
            self._keep(read.keys, rest)
        return range_reply(page, count=len(whole.items))

    def _page(self, request: pb.RangeRequest) -> RangeResult:
        read = range_in(request)
        held = self._paged.pop((request.revision, read.keys.end), None)
        if held is None or not held.items or held.items[0].key < read.keys.start:
            raise RevisionCompacted(f"revision {request.revision} is no longer kept: read the range anew")
        page, rest = _cut(held, read.limit)
        if rest is not None:
            self._keep(read.keys, rest)
        return page

    def _keep(self, keys: KeyRange, rest: RangeResult) -> None:
        self._paged[rest.revision, keys.end] = rest
        while len(self._paged) > _PAGED_MAX:
            self._paged.popitem(last=False)

    async def _txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        result = await self._store.txn(
            [compare_in(each) for each in request.compare],
            [op_in(each) for each in request.success],
            [op_in(each) for each in request.failure],
        )
        return txn_reply(result)

    # -- leases --------------------------------------------------------------------------------------------------

    async def _grant(self, request: pb.LeaseGrantRequest) -> pb.LeaseGrantResponse:
        lease = await self._store.grant_lease(request.TTL * 1000)
        return pb.LeaseGrantResponse(ID=lease.id, TTL=lease.ttl_ms // 1000)

    async def _revoke(self, request: pb.LeaseRevokeRequest) -> pb.LeaseRevokeResponse:
        await self._store.revoke_lease(LeaseId(request.ID))
        return pb.LeaseRevokeResponse()

    async def _keep_alive(
        self, requests: AsyncIterator[pb.LeaseKeepAliveRequest], context: Context
    ) -> AsyncIterator[pb.LeaseKeepAliveResponse]:
        async for request in requests:
            try:
                seconds = await self._store.keep_alive(LeaseId(request.ID)) // 1000
            except LeaseNotFound:
                seconds = 0
            yield pb.LeaseKeepAliveResponse(ID=request.ID, TTL=seconds)

    # -- watching ------------------------------------------------------------------------------------------------

    async def _watch(
        self, requests: AsyncIterator[pb.WatchRequest], context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """One watch a stream. Everything that happens moves it on, so that a question how far it is has its answer at once."""
        first = await anext(requests, None)
        if first is None or not first.HasField("create_request"):
            raise Invalid("a stream of changes begins with what is to be watched")
        wanted = first.create_request
        keys = range_in(pb.RangeRequest(key=wanted.key, range_end=wanted.range_end)).keys
        start = wanted.start_revision or (await self._store.range(KeyRange("", ""))).revision + 1
        yield pb.WatchResponse(header=pb.ResponseHeader(revision=start - 1), created=True)
        told = start - 1
        changing = aiter(self._store.watch(keys, from_revision=start, without=wanted.without))
        news: asyncio.Future[Changes] = asyncio.ensure_future(_next_of(changing))
        asked: asyncio.Future[pb.WatchRequest | None] = asyncio.ensure_future(_next_or_none(requests))
        try:
            while True:
                both: tuple[asyncio.Future[Any], ...] = (news, asked)
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if news.done():
                    try:
                        changes = news.result()
                    except StopAsyncIteration:
                        return
                    told = changes.revision
                    yield changes_reply(changes)
                    news = asyncio.ensure_future(_next_of(changing))
                elif asked.result() is None:
                    return
                else:
                    yield pb.WatchResponse(header=pb.ResponseHeader(revision=told))
                    asked = asyncio.ensure_future(_next_or_none(requests))
        finally:
            news.cancel()
            asked.cancel()


async def _next_of(changing: AsyncIterator[Changes]) -> Changes:
    return await anext(changing)


async def _next_or_none(requests: AsyncIterator[pb.WatchRequest]) -> pb.WatchRequest | None:
    return await anext(requests, None)


def _cut(whole: RangeResult, limit: int | None) -> tuple[RangeResult, RangeResult | None]:
    """The first of it, and what is left."""
    if limit is None or len(whole.items) <= limit:
        return whole, None
    rest = RangeResult(whole.items[limit:], whole.revision)
    return RangeResult(whole.items[:limit], whole.revision, has_more=True), rest


def answering(serve: Callable[[Any], Awaitable[Any]]) -> Callable[[Any, Context], Awaitable[Any]]:
    async def answer(request: Any, context: Context) -> Any:
        try:
            return await serve(request)
        except HeadraceError as error:
            await _refuse(context, error)

    return answer


def _streaming(
    serve: Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]],
) -> Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]]:
    async def answer(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        try:
            async for reply in serve(requests, context):
                yield reply
        except HeadraceError as error:
            await _refuse(context, error)

    return answer


async def _refuse(context: Context, error: HeadraceError) -> None:
    for kind, status, word in _STATUS:
        if isinstance(error, kind):
            await context.abort(status, f"{word}: {error}" if word else str(error))
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
