"""A store that would lose records later is refused at start, with the reason."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.support.metastores import ManualClock

from headrace.blob.local import LocalBlobStore
from headrace.blob.memory import MemoryBlobStore
from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import bare_store, open_store
from headrace.blob.probe import probe
from headrace.blob.settings import ObjectStoreSettings
from headrace.blob.store import Buffer
from headrace.clock import SystemClock
from headrace.errors import Invalid, ObjectNotFound, StorageFailed, StoreUnavailable


class IgnoresCondition(MemoryBlobStore):
    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        await self.put(key, chunks)


class IgnoresRange(MemoryBlobStore):
    async def get_range(self, key: str, position: int, length: int) -> Buffer:
        return await self.get(key)


class ForgetsWrites(MemoryBlobStore):
    async def get(self, key: str) -> Buffer:
        raise ObjectNotFound(key)


class RefusesWrites(MemoryBlobStore):
    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        raise StoreUnavailable("403 AccessDenied")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (IgnoresCondition, "ignores If-None-Match"),
        (IgnoresRange, "range reads"),
        (ForgetsWrites, "cannot be read back"),
        (RefusesWrites, "AccessDenied"),
    ],
)
async def test_unfit_store_is_refused_with_the_reason(kind: type[MemoryBlobStore], reason: str) -> None:
    store = kind(SystemClock())
    with pytest.raises(StorageFailed, match=reason):
        await probe(store, "probe/1")
    assert [info async for info in store.list("")] == []


async def test_settings_lead_to_a_probed_store(tmp_path: Path) -> None:
    settings = ObjectStoreSettings(type="local", local_path=str(tmp_path / "objects"))
    store = await open_store(settings, clock=SystemClock(), metrics=BlobMetrics())
    await store.put("a/b", [b"x"])
    assert (tmp_path / "objects" / "a" / "b").read_bytes() == b"x"
    await store.close()


@pytest.mark.requirement("R3.103", "R3.104", "R3.105")
def test_settings_have_the_documented_defaults_and_bounds() -> None:
    assert ObjectStoreSettings().type == "s3"
    assert ObjectStoreSettings().s3_region == "us-central1"
    with pytest.raises(Invalid, match=r"object_store\.s3\.bucket"):
        bare_store(ObjectStoreSettings(), SystemClock())
    with pytest.raises(Invalid, match=r"object_store\.gcs\.bucket"):
        bare_store(ObjectStoreSettings(type="gcs"), SystemClock())
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "azure"}, ObjectStoreSettings)


async def test_local_store_takes_no_key_outside_its_directory(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    for key in ("../secret", "a//b", "/etc/passwd", "a/.draft-1", ""):
        with pytest.raises(Invalid):
            await store.put(key, [b"x"])
    await store.close()


class OutOfReach(MemoryBlobStore):
    async def put_if_absent(self, key: str, chunks: Sequence[Buffer]) -> None:
        raise StoreUnavailable("connection refused")


@pytest.mark.parametrize(("kind", "is_taken"), [(OutOfReach, True), (IgnoresCondition, False), (IgnoresRange, False)])
async def test_a_store_that_was_trusted_before_may_be_out_of_reach_but_not_unfit(
    kind: type[MemoryBlobStore], is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.blob.open.bare_store", lambda settings, clock: kind(clock))
    settings = ObjectStoreSettings(type="memory", retry_count=0)
    with pytest.raises(StorageFailed):
        await open_store(settings, clock=SystemClock(), metrics=BlobMetrics())
    if is_taken:
        store = await open_store(settings, clock=ManualClock(), metrics=BlobMetrics(), is_trusted=True)
        assert store.is_down
    else:
        with pytest.raises(StorageFailed):
            await open_store(settings, clock=SystemClock(), metrics=BlobMetrics(), is_trusted=True)


def test_other_objects_have_another_address() -> None:
    here = ObjectStoreSettings(s3_bucket="b", s3_endpoint="http://a:1")
    assert here.address == msgspec.structs.replace(here, retry_count=1).address
    others = [
        msgspec.structs.replace(here, s3_bucket="c"),
        msgspec.structs.replace(here, s3_prefix="p"),
        msgspec.structs.replace(here, s3_endpoint=None),
        msgspec.structs.replace(here, type="gcs"),
    ]
    assert len({each.address for each in (here, *others)}) == 5
