"""Where tables are listed and where their files lie.

The embedded default is a SQLite catalog and a directory; any catalog that pyiceberg knows (REST, Glue, Hive, ...) comes by
its own properties. Secrets among them are read from the environment by writing `${NAME}`.

What a commit has answered is on the disk: files of a local warehouse are flushed when they are written, and SQLite flushes the
row that names them. A checkpoint that goes on behind a commit can then never be ahead of the tables.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

import msgspec

from headrace.blob.local import make_directory
from headrace.errors import Invalid

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_NAME: Final = "headrace"
FILE_IO: Final = "py-io-impl"
FLUSHED_IO: Final = "headrace.pipeline.tables.flushed_io.FlushedFileIO"
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
        given = {name: _expand(value) for name, value in settings.catalog.items()}
        if _is_local(given.get("warehouse", "")):
            given.setdefault(FILE_IO, FLUSHED_IO)
        return _flush_commits(load_catalog(CATALOG_NAME, **given))
    directory = Path(settings.path).absolute()
    try:
        make_directory(directory)
    except OSError as error:
        raise Invalid(f"warehouse.path {directory} cannot be made: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Invalid(f"warehouse.path {directory} cannot be written to by this user")
    catalog = load_catalog(
        CATALOG_NAME,
        type="sql",
        uri=f"sqlite:///{directory}/catalog.db?timeout={_SQLITE_TIMEOUT_S}",
        warehouse=f"file://{directory}",
        **{FILE_IO: FLUSHED_IO},
    )
    return _flush_commits(catalog)


def _is_local(location: str) -> bool:
    return bool(location) and urlparse(location).scheme in ("", "file")


def _flush_commits(catalog: "Catalog") -> "Catalog":
    """SQLite keeps a commit by deleting its journal, and flushes the directory behind that only when asked to."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import event

    if isinstance(catalog, SqlCatalog) and catalog.engine.dialect.name == "sqlite":
        # Connections of the driver, as SQLAlchemy hands them over.
        def set_pragma(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA synchronous = EXTRA")

        event.listen(catalog.engine, "connect", set_pragma)
        catalog.engine.dispose()
    return catalog


def _expand(value: str) -> str:
    def lookup(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise Invalid(f"warehouse.catalog refers to ${{{name}}}, which is not in the environment")
        return os.environ[name]

    return _REFERENCE.sub(lookup, value)
