"""Operations: look at those that run or have run, and cancel."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.cluster import Nothing
from headrace.admin.api.operations import OperationView


class OperationList(msgspec.Struct, frozen=True, kw_only=True):
    operations: list[OperationView]
    """Newest first."""


class NamedOperation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Annotated[str, Meta(max_length=64)]


async def list_operations(request: Nothing, call: Call) -> OperationList:
    return OperationList(operations=call.parts.operations.all(call.sees))


async def describe_operation(request: NamedOperation, call: Call) -> OperationView:
    return call.parts.operations.get(request.operation, call.sees)


async def resume_operation(request: NamedOperation, call: Call) -> OperationView:
    call.parts.operations.get(request.operation, call.sees)
    return call.parts.operations.resume(request.operation)


async def cancel_operation(request: NamedOperation, call: Call) -> OperationView:
    call.parts.operations.get(request.operation, call.sees)
    return await call.parts.operations.cancel(request.operation)
