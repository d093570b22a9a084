"""Wasm modules: upload, list, look at, remove; and which topic has which."""

import binascii
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
import pybase64
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import Done, TopicName
from headrace.admin.rights import Operation, Resource
from headrace.broker.modules import ModuleInfo, Transforms, check_module_name
from headrace.errors import Invalid, UnsupportedOperation

ModuleName = Annotated[str, Meta(min_length=1, max_length=100)]
ModuleId = Annotated[str, Meta(min_length=1, max_length=120)]
_MODULE: Final = "wasm.module.id"
_DEAD_LETTERS: Final = "wasm.dead.letter.topic"


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    version: str
    object_key: str
    size_bytes: int
    created_ms: int
    sha256: str
    takes_batches: bool
    """It exports `process_batch`; otherwise it is given record by record."""
    topics: list[str]
    """Those that have it, and that the caller may know of."""
    is_leaving: bool = False
    """Its removal was begun: no topic can be given it."""


class UploadWasmModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: ModuleName
    content: Annotated[str, Meta(min_length=1)]
    """The module's bytes in Base64."""
    dry_run: bool = False
    """Compile and check it, keep nothing."""


class ModuleUploaded(msgspec.Struct, frozen=True, kw_only=True):
    module: ModuleRow | None
    """None after a dry run."""
    is_dry_run: bool = False


class ListWasmModules(PageRequest, frozen=True):
    pass


class ModuleList(msgspec.Struct, frozen=True, kw_only=True):
    modules: list[ModuleRow]
    next_page_token: str = ""
    total: int


class DescribeWasmModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    module: ModuleId
    with_content: bool = False
    """Also its bytes."""


class ModuleDetail(msgspec.Struct, frozen=True, kw_only=True):
    module: ModuleRow
    content: str | None = None
    """In Base64."""


class RemoveWasmModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    module: ModuleId
    dry_run: bool = False


class AssignWasmToTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    module: Annotated[str, Meta(max_length=120)] = ""
    """The id of a module, as `scrub_v2`. Empty: the topic has none any more."""
    dead_letter_topic: Annotated[str, Meta(max_length=255)] | None = None
    """Where batches go that the module fails on; empty refuses them. Left out, it stays as it is."""
    dry_run: bool = False


class Assigned(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    module: str
    """Empty: none."""
    dead_letter_topic: str
    former_module: str
    is_dry_run: bool = False


async def upload_wasm_module(request: UploadWasmModule, call: Call) -> ModuleUploaded:
    transforms = _transforms(call)
    check_module_name(request.name)
    try:
        code = pybase64.b64decode(request.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid(f"content: not Base64: {error}") from error
    if request.dry_run:
        await transforms.check(request.name, code)
        return ModuleUploaded(module=None, is_dry_run=True)
    return ModuleUploaded(module=_row(await transforms.upload(request.name, code), call))


async def list_wasm_modules(request: ListWasmModules, call: Call) -> ModuleList:
    found = await _transforms(call).modules.all()
    page = await page_of(found, request, turns=call.turns, name=lambda each: each.id, orders={})
    return ModuleList(
        modules=[_row(each, call) async for each in call.turns.over(page.items)],
        next_page_token=page.next_token,
        total=page.total,
    )


async def describe_wasm_module(request: DescribeWasmModule, call: Call) -> ModuleDetail:
    modules = _transforms(call).modules
    found = await modules.get(request.module)
    content = pybase64.b64encode(await modules.code(found)).decode() if request.with_content else None
    return ModuleDetail(module=_row(found, call), content=content)


async def remove_wasm_module(request: RemoveWasmModule, call: Call) -> Done:
    modules = _transforms(call).modules
    if request.dry_run:
        await modules.get(request.module)
        return Done(message=f"module {request.module} would be removed", is_dry_run=True)
    await modules.remove(request.module)
    return Done(message=f"module {request.module} removed")


async def assign_wasm_to_topic(request: AssignWasmToTopic, call: Call) -> Assigned:
    """One change of the topic's configs: whoever reads them sees the module and the dead letters of before, or of after."""
    topics, transforms = call.broker.topics, _transforms(call)
    former = topics.get(request.name).overrides.get(_MODULE, "")
    wanted = {_MODULE: request.module, _DEAD_LETTERS: request.dead_letter_topic}
    if request.module:
        # Compiled here before a producer has to wait for it; and what cannot be had is not assigned.
        await transforms.prepare((await transforms.modules.get(request.module)).id)
    if request.dead_letter_topic:
        call.require(Operation.WRITE, Resource.TOPIC, request.dead_letter_topic)
        topics.get(request.dead_letter_topic)
        if request.dead_letter_topic == request.name:
            raise Invalid("dead_letter_topic: a topic's dead letters go to another topic")

    def edit(overrides: Mapping[str, str]) -> Mapping[str, str]:
        changed = {**overrides, **{name: value for name, value in wanted.items() if value is not None}}
        return {name: value for name, value in changed.items() if value or name not in wanted}

    if request.dry_run:
        planned = topics.check_config(request.name, edit(topics.get(request.name).overrides))
    else:
        await topics.alter_config(request.name, edit)
        planned = topics.get(request.name).overrides
    return Assigned(
        topic=request.name,
        module=planned.get(_MODULE, ""),
        dead_letter_topic=planned.get(_DEAD_LETTERS, ""),
        former_module=former,
        is_dry_run=request.dry_run,
    )


def _transforms(call: Call) -> Transforms:
    if call.broker.transforms is None:
        raise UnsupportedOperation("this node keeps no Wasm modules")
    return call.broker.transforms


def _row(module: ModuleInfo, call: Call) -> ModuleRow:
    topics = _transforms(call).modules.topics_of(module.id)
    return ModuleRow(
        **msgspec.structs.asdict(module),
        topics=[each for each in topics if call.sees(Operation.DESCRIBE, Resource.TOPIC, each)],
    )
