"""`headrace.control.Membership` over gRPC: a controller as brokers see it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import grpc

from headrace.control import membership_pb2 as pb
from headrace.control.controller.driver import Controller
from headrace.control.etcd.server import answering, serialize
from headrace.errors import Concurrent, NotReady, OutcomeUnknown, StaleEpoch

SERVICE: Final = "headrace.control.Membership"


class Numbering(NamedTuple):
    """What became of a commit: its number, and the revision of what it wrote."""

    number: int
    revision: int


CommitObject = Callable[[bytes], Awaitable[Numbering]]
"""Raises `NotReady` where this controller is not active, and `Concurrent`, `StaleEpoch` and `OutcomeUnknown` as `CommitOutcome` says."""


async def _nothing(commit: bytes) -> Numbering:
    raise NotReady("this controller commits nothing")


class MembershipService:
    def __init__(self, controller: Controller, *, commit_object: CommitObject = _nothing) -> None:
        self._controller = controller
        self._commit = commit_object

    def handler(self) -> grpc.GenericRpcHandler:
        def one(serve: Callable[[Any], Awaitable[Any]], request: type[Any]) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(answering(serve), request.FromString, serialize)

        methods = {
            "Register": one(self._register, pb.RegisterRequest),
            "Heartbeat": one(self._heartbeat, pb.HeartbeatRequest),
            "Leave": one(self._leave, pb.LeaveRequest),
            "CommitObject": one(self._commit_object, pb.CommitObjectRequest),
            "Adopt": one(self._adopt, pb.AdoptRequest),
            "GiveUpWal": one(self._give_up_wal, pb.GiveUpWalRequest),
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

    async def _commit_object(self, request: pb.CommitObjectRequest) -> pb.CommitObjectReply:
        self._controller.check_cluster(request.cluster_id)
        reply = pb.CommitObjectReply(outcome=pb.COMMIT_REFUSED)
        try:
            reply.number, reply.revision = await self._commit(request.commit)
            reply.outcome = pb.COMMIT_DONE
        except StaleEpoch as error:
            reply.outcome, reply.reason = pb.COMMIT_STALE, str(error)
        except Concurrent as error:
            reply.outcome, reply.reason = pb.COMMIT_REFUSED, str(error)
        except OutcomeUnknown as error:
            reply.outcome, reply.reason = pb.COMMIT_UNKNOWN, str(error)
        except NotReady:
            return pb.CommitObjectReply(standing=self._inactive())
        reply.standing.CopyFrom(self._standing())
        # It was when it answered: what it said counts.
        reply.standing.is_active = True
        return reply

    def _inactive(self) -> pb.Standing:
        standing = self._standing()
        standing.is_active = False
        return standing

    async def _adopt(self, request: pb.AdoptRequest) -> pb.AdoptReply:
        count = 0
        if self._controller.office.is_held:
            count = await self._controller.adopt(
                request.owner,
                taker=request.taker,
                ring_id=request.ring_id,
                wal_path=request.wal_path,
                cluster_id=request.cluster_id,
            )
        return pb.AdoptReply(standing=self._standing(), partitions=count)

    async def _give_up_wal(self, request: pb.GiveUpWalRequest) -> pb.GiveUpWalReply:
        count = 0
        if self._controller.office.is_held:
            count = await self._controller.give_up_wal(request.broker_id, cluster_id=request.cluster_id)
        return pb.GiveUpWalReply(standing=self._standing(), partitions=count)

    def _standing(self) -> pb.Standing:
        holder = self._controller.office.holder
        return pb.Standing(
            is_active=self._controller.office.is_held,
            active_endpoint=holder.endpoint if holder is not None else "",
            cluster_id=self._controller.cluster_id,
        )
