"""The bucket as a reader sees it: the newest inventory, footers and ranges of objects. Reads only, and blocks.

Knows where things lie from `tier.format`; never lists data objects and never trusts a listing for what is committed.
"""

import time
from pathlib import Path
from typing import Any, Final

import msgspec
import obstore
from obstore.store import LocalStore, from_url

from headrace.errors import NotFound, StorageFailed
from headrace.tier.format.checkpoint import decode_checkpoint
from headrace.tier.format.inventory import Inventory
from headrace.tier.format.keys import (
    CHECKPOINTS,
    CLUSTER_MARKER,
    MANIFESTS,
    checkpoint_key,
    manifest_key,
    number_of,
)
from headrace.tier.format.manifest import decode_manifest, missing_manifest
from headrace.tier.format.object import Footer, decode_footer
from headrace.tier.format.plan import ObjectRange

FOOTERS_KEPT: Final = 1024
"""Footers a planner remembers: 72 bytes per mebibyte of log, so this covers some ten thousand objects' worth."""
IDLE_REFRESHES_PER_LISTING: Final = 16
"""How often a reader that finds no next manifest looks for a checkpoint ahead of it."""
GAP_LOOKS: Final = 10
GAP_PAUSE_S: Final = 0.5
"""Manifests are written several at a time: one that is late is there within moments of the next."""


class ObjectMissing(NotFound):
    """The object is not there (any more): whoever planned to read it should look at a newer inventory."""


class BucketAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bucket is. Never how to prove who we are: credentials come from the environment."""

    url: str
    endpoint: str | None = None
    region: str | None = None


class Bucket:
    """A cluster's objects under one prefix."""

    def __init__(self, address: BucketAddress) -> None:
        self._address = address
        self._store = _open_store(address)
        self._inventory: Inventory | None = None
        self._idle_count = 0
        self._footers: dict[str, Footer] = {}

    def refresh(self) -> Inventory:
        """The inventory after every manifest that is there now. Cheap when nothing changed: one GET that finds none."""
        if self._inventory is None:
            self._inventory = self._load_inventory()
        elif self._follow_manifests(self._inventory):
            self._idle_count = 0
        else:
            # Manifests go once a checkpoint covers them, so the next one may also be missing because we are far behind.
            self._idle_count += 1
            if self._idle_count % IDLE_REFRESHES_PER_LISTING == 0 and self._is_behind(self._inventory):
                self._inventory = self._load_inventory()
        return self._inventory

    def footer(self, planned: ObjectRange) -> Footer:
        footer = self._footers.get(planned.key)
        if footer is None:
            data = self.read(planned.key, planned.footer_position, planned.footer_size)
            footer = decode_footer(data)
            while len(self._footers) >= FOOTERS_KEPT:
                del self._footers[next(iter(self._footers))]
            self._footers[planned.key] = footer
        return footer

    def read(self, key: str, position: int, length: int) -> memoryview:
        """Exactly `length` bytes. Raises `ObjectMissing`, or `StorageFailed` for anything else."""
        try:
            data = memoryview(obstore.get_range(self._store, key, start=position, length=length))
        except FileNotFoundError as error:
            raise ObjectMissing(f"{key} is not in {self._address.url}") from error
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StorageFailed(f"reading {key}: {_first_line(error)}") from error
        if len(data) != length:
            raise StorageFailed(f"{key}: {len(data)} bytes at {position} where {length} belong")
        return data

    def _is_behind(self, inventory: Inventory) -> bool:
        return self._newest_checkpoint() > inventory.number or self._following(inventory) is not None

    def _load_inventory(self) -> Inventory:
        """Everything committed. A manifest may be a moment later than the one behind it; one that stays missing is an error."""
        for looks_left in reversed(range(GAP_LOOKS)):
            inventory = self._read_inventory()
            following = self._following(inventory)
            if following is None:
                break
            if not looks_left:
                raise StorageFailed(f"{self._address.url}: {missing_manifest(inventory.number + 1, following)}")
            time.sleep(GAP_PAUSE_S)
        return inventory

    def _following(self, inventory: Inventory) -> int | None:
        """The number of a manifest that is there although the next one is not."""
        numbers = self._numbers(MANIFESTS, after=manifest_key(inventory.number))
        first = min(numbers, default=None)
        return None if first == inventory.number + 1 else first

    def _read_inventory(self) -> Inventory:
        newest = self._newest_checkpoint()
        if newest:
            inventory = decode_checkpoint(self._get(checkpoint_key(newest)))
        else:
            inventory = Inventory(self._read_cluster_id())
        self._follow_manifests(inventory)
        return inventory

    def _follow_manifests(self, inventory: Inventory) -> bool:
        """Apply those that follow, up to the first that is missing; whether there was any."""
        before = inventory.number
        try:
            while True:
                inventory.apply(decode_manifest(self._get(manifest_key(inventory.number + 1))))
        except ObjectMissing:
            return inventory.number != before

    def _newest_checkpoint(self) -> int:
        return max(self._numbers(CHECKPOINTS), default=0)

    def _numbers(self, prefix: str, *, after: str | None = None) -> list[int]:
        try:
            pages = obstore.list(self._store, prefix, offset=after)
            return [number_of(entry["path"]) for page in pages for entry in page]
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StorageFailed(f"listing {prefix} in {self._address.url}: {_first_line(error)}") from error

    def _read_cluster_id(self) -> str:
        try:
            marker = msgspec.json.decode(self._get(CLUSTER_MARKER))
        except ObjectMissing as error:
            raise NotFound(f"no headrace cluster in {self._address.url}: {CLUSTER_MARKER} is missing") from error
        return str(marker["cluster_id"])

    def _get(self, key: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError as error:
            raise ObjectMissing(f"{key} is not in {self._address.url}") from error
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StorageFailed(f"reading {key}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """obstore shows its whole inside below that."""
    return str(error).partition("\n")[0]


# obstore's stores are a union of classes without a common, typed base.
def _open_store(address: BucketAddress) -> Any:
    if "://" not in address.url or address.url.startswith("file://"):
        directory = Path(address.url.removeprefix("file://"))
        if not directory.is_dir():
            raise NotFound(
                f"bucket {directory} is no directory here; a node's own is objects/ below its data directory"
            )
        return LocalStore(directory)
    config: dict[str, str] = {}
    if address.endpoint:
        config["endpoint"] = address.endpoint
    if address.region:
        config["region"] = address.region
    is_plain = bool(address.endpoint) and str(address.endpoint).startswith("http://")
    return from_url(address.url, config=config, client_options={"allow_http": is_plain})
