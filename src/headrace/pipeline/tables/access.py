"""How executors reach a table's files: FileIO properties, with credentials from the catalog's settings or vended by it.

Spark shows plans and keeps them in its event log, and a Spark Connect server logs requests. So properties travel sealed: the
function that holds them has no readable secret in its bytes, and showing it shows nothing. Whoever can run code on an executor
can open them, as he can read the executor's environment.
"""

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

_CATALOG_ONLY: Final = ("uri", "credential", "token", "password", "auth", "oauth2", "rest.", "header.", "headrace.")
"""Beginnings of properties that a catalog needs and files do not: executors never talk to the catalog."""
_SIGNER: Final = "s3.signer"
"""With it, requests for files are signed by the catalog's server, which wants its own address and token."""


class FileAccess:
    """FileIO properties that can be pickled into a plan."""

    __slots__ = ("_sealed",)

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._sealed = zlib.compress(msgspec.json.encode(dict(properties)))

    @property
    def properties(self) -> dict[str, str]:
        return msgspec.json.decode(zlib.decompress(self._sealed), type=dict[str, str])

    def __repr__(self) -> str:
        return "FileAccess(...)"


# A catalog may keep objects of its own among the properties.
def file_access(properties: Mapping[str, Any]) -> FileAccess:
    """What of a table's FileIO properties its files need."""
    has_signer = _SIGNER in properties
    return FileAccess(
        {
            name: value
            for name, value in properties.items()
            if isinstance(value, str) and (has_signer or not name.startswith(_CATALOG_ONLY))
        }
    )
