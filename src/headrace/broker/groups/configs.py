"""What administrators have set for single groups: kept in the metastore, in force at the group's next heartbeat.

A group need not exist to have configs, and they outlive it, as in Apache Kafka.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from headrace.broker.group_config import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, checked_group_config, group_defaults
from headrace.broker.groups.settings import GroupSettings
from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Delete, Metastore, Put, only, unchanged
from headrace.errors import Concurrent, CoordinatorLoading, Invalid
from headrace.telemetry.logging import get_logger

Edit = Callable[[Mapping[str, str]], Mapping[str, str]]

ATTEMPTS_MAX: Final = 16
"""Races lost in a row before the caller hears of it."""

log = get_logger(__name__)


class GroupConfigs:
    def __init__(self, metastore: Metastore, settings: GroupSettings) -> None:
        self._metastore = metastore
        self._settings = settings
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._changing = asyncio.Lock()
        self._is_loaded = False
        self.defaults = group_defaults(settings)
        """Broker-wide values for group config keys."""
        self.on_changed: Callable[[str], None] = lambda group_id: None
        """Told of a group whose configs have changed, when they are durable."""

    async def load(self) -> None:
        found: dict[str, Mapping[str, str]] = {}
        for item in (await self._metastore.range(keys.GROUP_CONFIGS)).items:
            key = keys.parse(item.key)
            if isinstance(key, keys.GroupConfigKey):
                found[key.group] = self._usable(key.group, item.value)
        self._overrides = found
        self._is_loaded = True

    def _usable(self, group_id: str, stored: bytes) -> Mapping[str, str]:
        """Bounds may have been narrower when it was stored: what does not fit any more is passed over, and stays stored."""
        overrides = dict(values.decode(pb.GroupConfig, stored).overrides)
        try:
            return checked_group_config(overrides, self._settings)
        except Invalid as error:
            log.warning("stored group config is not in force", group=group_id, reason=str(error))
            return {}

    def overrides_of(self, group_id: str) -> Mapping[str, str]:
        self._require_loaded()
        return self._overrides.get(group_id, {})

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return int(self._value(group_id, HEARTBEAT_INTERVAL))

    def session_timeout_ms(self, group_id: str) -> int:
        return int(self._value(group_id, SESSION_TIMEOUT))

    def _value(self, group_id: str, name: str) -> str:
        return self._overrides.get(group_id, {}).get(name, self.defaults[name])

    def checked(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """`overrides` as a group would keep them; raises `Invalid` for what it cannot."""
        return checked_group_config(overrides, self._settings)

    async def alter(self, group_id: str, edit: Edit) -> None:
        """Replace the overrides by what `edit` makes of them. It may be asked more than once."""
        self._require_loaded()
        # To its end, whatever becomes of the caller: otherwise the metastore could have what nobody here knows.
        await asyncio.shield(asyncio.ensure_future(self._alter(group_id, edit)))

    async def _alter(self, group_id: str, edit: Edit) -> None:
        path = keys.group_config(group_id)
        async with self._changing:
            for _ in range(ATTEMPTS_MAX):
                item = await self._metastore.get(path)
                known = {} if item is None else dict(values.decode(pb.GroupConfig, item.value).overrides)
                overrides = self.checked(edit(known))
                change = (
                    Put(path, values.encode(pb.GroupConfig(overrides=overrides))) if overrides else Delete(only(path))
                )
                revision = 0 if item is None else item.mod_revision
                if (await self._metastore.txn((unchanged(path, revision),), (change,))).is_success:
                    break
            else:
                raise Concurrent(f"the config of group {group_id!r} lost {ATTEMPTS_MAX} races")
            if overrides:
                self._overrides[group_id] = overrides
            else:
                self._overrides.pop(group_id, None)
            self.on_changed(group_id)

    def _require_loaded(self) -> None:
        if not self._is_loaded:
            raise CoordinatorLoading("group configs are being loaded")
