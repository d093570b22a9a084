"""`headrace.control.Membership` over gRPC: a controller as brokers see it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from headrace.control import membership_pb2 as pb
from headrace.control.controller.driver import Controller
from headrace.control.etcd.server import answering, serialize

SERVICE: Final = "headrace.control.Membership"


class MembershipService:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handler(self) -> grpc.GenericRpcHandler:
        def one(serve: Callable[[Any], Awaitable[Any]], request: type[Any]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(answering(serve), request.FromString, serialize)

        methods = {
            "Register": one(self._register, pb.RegisterRequest),
            "Heartbeat": one(self._heartbeat, pb.HeartbeatRequest),
            "Leave": one(self._leave, pb.LeaveRequest),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _register(self, request: pb.RegisterRequest) -> pb.RegisterReply:
        if not self._controller.office.is_held:
            return pb.RegisterReply(standing=self._standing())
        entered = await self._controller.register(
            request.broker_id, request.registration, cluster_id=request.cluster_id
        )
        return pb.RegisterReply(
            standing=self._standing(),
            numeric_id=entered.registered.numeric_id,
            broker_epoch=entered.registered.broker_epoch,
            revision=entered.fence.revision,
        )

    async def _heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        state = await self._controller.heartbeat(
            request.broker_id,
            request.broker_epoch,
            cluster_id=request.cluster_id,
            ready=request.ready if request.HasField("ready") else None,
        )
        reply = pb.HeartbeatReply(standing=self._standing(), is_fenced=state is None)
        if state is not None:
            reply.state = state.value
        return reply

    async def _leave(self, request: pb.LeaveRequest) -> pb.LeaveReply:
        left = 0
        if self._controller.office.is_held:
            left = await self._controller.leave(
                request.broker_id, request.broker_epoch, cluster_id=request.cluster_id, is_gone=request.is_gone
            )
        return pb.LeaveReply(standing=self._standing(), partitions_left=left)

    def _standing(self) -> pb.Standing:
        holder = self._controller.office.holder
        return pb.Standing(
            is_active=self._controller.office.is_held,
            active_endpoint=holder.endpoint if holder is not None else "",
            cluster_id=self._controller.cluster_id,
        )
