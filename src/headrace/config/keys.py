"""Every setting's dotted key, and the field it fills. The one place that relates the two.

A field's key is its section's prefix and its own name with dots for underscores (`wal` + `capacity_bytes` is
`wal.capacity.bytes`), unless the section names it outright. Doors say where they listen under `listen.` and
`advertised.`, so that one look at a file shows every open port.
"""

import ast
import inspect
import textwrap
from typing import Any

import msgspec
from msgspec import NODEFAULT

from headrace.config.settings import SECTIONS, sections

ENVIRONMENT_PREFIX = "HEADRACE_"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its name outside and its place inside."""

    name: str
    section: str
    field: str
    type: Any  # Any: whatever annotation the field carries, for msgspec.convert
    default: object
    """What holds when nobody says otherwise; NODEFAULT for a required key."""

    @property
    def variable(self) -> str:
        """Its environment variable: `wal.path` is `HEADRACE_WAL_PATH`."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace(".", "_")

    @property
    def is_address(self) -> bool:
        return self.name.startswith(("listen.", "advertised.")) or (
            self.name.startswith("listener.") and self.field in ("listen", "advertised")
        )


def all_keys() -> dict[str, Key]:
    """Every key by name, in the order the sections declare them."""
    keys: dict[str, Key] = {}
    for part in sections():
        section = SECTIONS[part.name]
        for field in msgspec.structs.fields(part.type):
            name = section.key_of(field.name)
            assert name not in keys, f"{name} is declared by {keys[name].section} and by {part.name}"
            keys[name] = Key(
                name=name, section=part.name, field=field.name, type=field.type, default=_default_of(field)
            )
    return keys


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


def sentences_of(struct: type) -> dict[str, str]:
    """The string that follows each field, as people write them in `settings.py`."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
