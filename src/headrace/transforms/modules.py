"""Modules as the cluster keeps them: bytes in object storage, what they are in the metastore. Never changed, only added and removed.

Bytes come first and the entry after, removed it is the other way round: an entry always has its bytes, and bytes without an entry
are garbage that `collect` finds. A version's number is never given twice, so an id means the same bytes for ever, whoever has
compiled them already. A module that is to be removed is marked first. From then on no topic can be given it, since the
transaction that would compares the entry; so whoever looks at the topics after the mark sees all that have it.
"""

import hashlib
import re
from typing import Final

import msgspec

from headrace.blob.store import BlobStore, Buffer, get_sound, put_once
from headrace.chance import Chance
from headrace.clock import Clock
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster, take_numbers
from headrace.control.metastore import Delete, KeyValue, Put, absent, only, read_all, unchanged
from headrace.control.values import WASM_MODULE_ID
from headrace.errors import (
    Concurrent,
    Corrupted,
    Invalid,
    InvalidName,
    NotEmpty,
    OutcomeUnknown,
    ResourceNotFound,
    TimedOut,
)
from headrace.telemetry.logging import get_logger

OBJECTS: Final = "wasm/"
"""Where modules lie in the bucket. The tier's own objects have other beginnings, and it looks at no others."""
MODULES_MAX: Final = 1000
"""One range of the metastore answers for all of them."""
GRACE_MS: Final = 3_600_000
"""Bytes without an entry are left alone for so long: their upload may be under way."""
_UPLOAD_MS_MAX: Final = GRACE_MS // 2
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

log = get_logger(__name__)


class ModuleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one version of a module."""

    id: str
    name: str
    version: str
    object_key: str
    size_bytes: int
    created_ms: int
    sha256: str
    takes_batches: bool
    is_leaving: bool


class Modules:
    def __init__(self, cluster: Cluster, blobs: BlobStore, clock: Clock, chance: Chance) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._blobs = blobs
        self._clock = clock
        self._chance = chance

    async def all(self) -> list[ModuleInfo]:
        items = (await read_all(self._store, keys.WASM_MODULES)).items
        return sorted(map(_info, items), key=lambda each: (each.name, _number(each.version)))

    async def get(self, module_id: str) -> ModuleInfo:
        return _info(await self._item(module_id))

    async def code(self, module: ModuleInfo) -> bytes:
        """Its bytes, which are those that were uploaded. `ObjectNotFound`, `Corrupted`, `StoreUnavailable`."""

        def checked(data: Buffer) -> bytes:
            if hashlib.sha256(data).hexdigest() != module.sha256:
                raise Corrupted(f"module {module.id} is not what was uploaded")
            return bytes(data)

        return await get_sound(self._blobs, module.object_key, checked)

    async def add(self, name: str, code: bytes, *, takes_batches: bool) -> ModuleInfo:
        """The next version of `name`; the newest one where that has the same bytes. For code that has been compiled."""
        check_module_name(name)
        known = await self.all()
        digest = hashlib.sha256(code).hexdigest()
        newest = next((each for each in reversed(known) if each.name == name), None)
        if newest is not None and newest.sha256 == digest and not newest.is_leaving:
            return newest
        if len(known) >= MODULES_MAX:
            raise Invalid(f"there are {len(known)} modules, and no more than {MODULES_MAX} are kept: remove some")
        started_ms = self._clock.now_ms()
        (number,) = await take_numbers(self._store, keys.next_module_version(name), 1, first=1)
        module_id = f"{name}_v{number}"
        entry = pb.WasmModule(
            name=name,
            version=f"v{number}",
            object_key=_object_key(module_id, self._chance),
            size_bytes=len(code),
            created_ms=started_ms,
            sha256=bytes.fromhex(digest),
            takes_batches=takes_batches,
        )
        await put_once(self._blobs, entry.object_key, [code])
        if self._clock.now_ms() - started_ms > _UPLOAD_MS_MAX:
            raise TimedOut(f"module {module_id} took so long that its bytes may be collected: upload it again")
        await self._put_entry(module_id, entry)
        log.info("module uploaded", module=module_id, bytes=len(code))
        return await self.get(module_id)

    async def _put_entry(self, module_id: str, entry: pb.WasmModule) -> None:
        path = keys.wasm_module(module_id)
        try:
            result = await self._store.txn((absent(path),), (Put(path, values.encode(entry)),))
        except OutcomeUnknown:
            found = await self._store.get(path)
            if found is None or values.decode(pb.WasmModule, found.value).object_key != entry.object_key:
                raise
            return
        if not result.is_success:
            raise Concurrent(f"module {module_id} is there already")

    async def remove(self, module_id: str) -> None:
        """Raises `NotEmpty` while a topic has it. Repeated, it ends what was begun and cut short."""
        item = await self._item(module_id)
        marked = values.decode(pb.WasmModule, item.value)
        marked.is_leaving = True
        result = await self._store.txn(
            (unchanged(item.key, item.mod_revision),), (Put(item.key, values.encode(marked)),)
        )
        if not result.is_success:
            raise Concurrent(f"module {module_id} is being changed by another")
        await self._cluster.caught_up(result.revision)
        if topics := self.topics_of(module_id):
            marked.is_leaving = False
            await self._store.txn((unchanged(item.key, result.revision),), (Put(item.key, values.encode(marked)),))
            raise NotEmpty(f"module {module_id} is assigned to {', '.join(topics[:5])}")
        await self._store.txn((unchanged(item.key, result.revision),), (Delete(only(item.key)),))
        await self._blobs.delete([marked.object_key])
        log.info("module removed", module=module_id)

    def topics_of(self, module_id: str) -> list[str]:
        """The topics that have it, by name, as far as this node knows."""
        return sorted(topic.name for topic in self._cluster.topics if topic.overrides.get(WASM_MODULE_ID) == module_id)

    async def collect(self) -> int:
        """Delete bytes that no entry names, once they are too old to be an upload under way."""
        before_ms = self._clock.now_ms() - GRACE_MS
        listed = [info.key async for info in self._blobs.list(OBJECTS) if info.modified_ms < before_ms]
        if not listed:
            return 0
        # Read after listing: an upload that has ended meanwhile is known by now.
        named = {each.object_key for each in await self.all()}
        garbage = [key for key in listed if key not in named]
        if garbage:
            await self._blobs.delete(garbage)
            log.info("bytes of removed modules deleted", count=len(garbage))
        return len(garbage)

    async def _item(self, module_id: str) -> KeyValue:
        item = await self._store.get(keys.wasm_module(module_id))
        if item is None:
            raise ResourceNotFound(f"no Wasm module {module_id!r}")
        return item


async def ids_in(blobs: BlobStore) -> set[str]:
    """The ids whose bytes the bucket has, with an entry or without."""
    return {info.key.removeprefix(OBJECTS).rpartition("-")[0] async for info in blobs.list(OBJECTS)}


def _object_key(module_id: str, chance: Chance) -> str:
    """Another one whenever it is asked for, so that an upload that was given up meets no later one."""
    return f"{OBJECTS}{module_id}-{chance.randbytes(6).hex()}.wasm"


def check_module_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidName(f"module name {name[:64]!r}: 1 to 100 of letters, digits, '.', '_' and '-'")


def _info(item: KeyValue) -> ModuleInfo:
    key, entry = keys.parse(item.key), values.decode(pb.WasmModule, item.value)
    assert isinstance(key, keys.WasmModuleKey)
    return ModuleInfo(
        id=key.module_id,
        name=entry.name,
        version=entry.version,
        object_key=entry.object_key,
        size_bytes=entry.size_bytes,
        created_ms=entry.created_ms,
        sha256=entry.sha256.hex(),
        takes_batches=entry.takes_batches,
        is_leaving=entry.is_leaving,
    )


def _number(version: str) -> int:
    digits = version.removeprefix("v")
    return int(digits) if digits.isdigit() else 0
