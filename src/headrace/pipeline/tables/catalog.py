"""Where tables are listed and where their files lie.

The embedded default is a SQLite catalog and a directory; any catalog that pyiceberg knows (REST, Glue, Hive, ...) comes by
its own properties. Secrets among them are read from the environment by writing `${NAME}`.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.errors import Invalid

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_NAME: Final = "headrace"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SQLITE_TIMEOUT_S: Final = 30


class WarehouseSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tables' catalog and files. Restart the pipeline after a change."""

    path: str = "warehouse"
    """Directory of the embedded catalog and of the tables' files, where `catalog` does not say otherwise."""

    catalog: dict[str, str] = {}
    """Properties of another catalog, as pyiceberg names them, e.g. `type: rest`, `uri: ...`, `warehouse: s3://...`."""


def open_catalog(settings: WarehouseSettings) -> "Catalog":
    # Half a second to import, and the settings above are read by many who open no catalog.
    from pyiceberg.catalog import load_catalog

    if settings.catalog:
        return load_catalog(CATALOG_NAME, **{name: _expand(value) for name, value in settings.catalog.items()})
    directory = Path(settings.path).absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"warehouse.path {directory} cannot be made: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Invalid(f"warehouse.path {directory} cannot be written to by this user")
    return load_catalog(
        CATALOG_NAME,
        type="sql",
        uri=f"sqlite:///{directory}/catalog.db?timeout={_SQLITE_TIMEOUT_S}",
        warehouse=f"file://{directory}",
    )


def _expand(value: str) -> str:
    def lookup(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise Invalid(f"warehouse.catalog refers to ${{{name}}}, which is not in the environment")
        return os.environ[name]

    return _REFERENCE.sub(lookup, value)
