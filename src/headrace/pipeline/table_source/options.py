"""The options of a read from a table: which table, in which catalog, and where a stream begins."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from headrace.errors import suggest
from headrace.pipeline.config_file import CONFIG_NAMES, CONFIG_VARIABLE, found_config
from headrace.pipeline.settings import load_config
from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.source.options import parse_count, parse_flag, refuse_secrets
from headrace.pipeline.tables.catalog import WarehouseSettings

_CATALOG: Final = "catalog."
_KNOWN: Final = frozenset(
    {"table", "config", "warehouse", "snapshotid", "filterpushdown", "startingsnapshot", "skipchangecommits", "path"}
)
_OF_STREAMS: Final = frozenset({"startingsnapshot", "skipchangecommits"})


class TableOptions(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    warehouse: WarehouseSettings
    snapshot_id: int | None = None
    """Read the table as it was then."""
    has_pushdown: bool = False
    starting: Literal["earliest", "latest"] = "earliest"
    """Whether a stream begins with the rows that are there."""
    skips_changes: bool = False
    """Whether a stream passes over commits that deleted or changed rows."""


def parse_table_options(options: Mapping[str, str], *, is_stream: bool | None) -> TableOptions:
    """Raises `InvalidOption` with the option's name for anything that cannot be meant.

    Where it is not known yet whether the read `is_stream`, options of both are let pass.
    """
    given = {name.lower(): value for name, value in options.items()}
    # A reference to the environment is no secret.
    refuse_secrets({name: value for name, value in given.items() if not value.startswith("${")})
    for name in given:
        if name not in _KNOWN and not name.startswith(_CATALOG):
            raise InvalidOption(f"unknown option {name} of a read from a table{suggest(name, _KNOWN)}")
        if name in _OF_STREAMS and is_stream is False:
            raise InvalidOption(f"{name} has a meaning in streams only")
    if is_stream and "snapshotid" in given:
        raise InvalidOption("snapshotId has no meaning in a stream")
    starting = given.get("startingsnapshot", "earliest").lower()
    if starting not in ("earliest", "latest"):
        raise InvalidOption(f"startingSnapshot is earliest or latest, not {starting!r}")
    if given["table"].count(".") < 1:
        raise InvalidOption(f"table {given['table']!r} is not namespace.table, e.g. silver.orders")
    return TableOptions(
        table=given["table"],
        warehouse=_warehouse(given),
        snapshot_id=parse_count(given, "snapshotid", least=0),
        has_pushdown=parse_flag(given, "filterpushdown", default=False),
        starting="latest" if starting == "latest" else "earliest",
        skips_changes=parse_flag(given, "skipchangecommits", default=False),
    )


def _warehouse(given: Mapping[str, str]) -> WarehouseSettings:
    """By its directory, by a catalog's properties, or by the pipelines' configuration."""
    catalog = {name[len(_CATALOG) :]: value for name, value in given.items() if name.startswith(_CATALOG)}
    if catalog:
        return WarehouseSettings(catalog=catalog)
    if given.get("warehouse"):
        return WarehouseSettings(path=given["warehouse"])
    named = given.get("config") or os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else found_config()
    if path is None:
        raise InvalidOption(
            "where is the table? Give warehouse (its directory), catalog.* or config: there is no "
            f"{' or '.join(CONFIG_NAMES)} here"
        )
    return load_config(path).warehouse
