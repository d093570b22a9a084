"""Where values come from: a TOML file, the environment, and `--set`. Each gives flat dotted keys.

Values from a file keep TOML's types; values from the environment and from flags are text until their key's type
is known.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.config.keys import ENVIRONMENT_PREFIX, Key
from headrace.errors import Invalid

VARIABLES_OF_COMMANDS: Final = frozenset(
    {
        "HEADRACE_ADMIN_PASSWORD_FILE",
        "HEADRACE_BOOTSTRAP",
        "HEADRACE_CLIENT_CONFIG",
        "HEADRACE_PIPELINE",
        "HEADRACE_PURE",
    }
)
"""Options of the command line that a variable can give; no settings of a node."""


class Given(msgspec.Struct, frozen=True):
    """A value somebody gave, and who."""

    value: object
    origin: str
    is_text: bool = False
    """Text still to be read as the key's type."""


def from_file(path: Path) -> dict[str, Given]:
    """`wal.path = "x"` and `[wal]` with `path = "x"` are the same key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not TOML: {error}") from error
    return {name: Given(value, str(path)) for name, value in _flatten(document)}


def from_environment(environ: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Given]:
    return {
        key.name: Given(environ[key.variable], key.variable, is_text=True)
        for key in keys.values()
        if key.variable in environ
    }


def unknown_variables(environ: Mapping[str, str], keys: Mapping[str, Key]) -> list[str]:
    """`HEADRACE_` variables that name no key.

    Not an error as an unknown key in a file is: Kubernetes puts HEADRACE_SERVICE_HOST and its like into the
    environment of every pod beside a service called headrace.
    """
    known = {key.variable for key in keys.values()} | VARIABLES_OF_COMMANDS
    return sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in known)


def from_flags(assignments: Iterable[str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise Invalid(f"--set {assignment}: expected KEY=VALUE")
        given[name.strip()] = Given(text.strip(), "--set", is_text=True)
    return given


def read_list(text: str) -> list[str]:
    """`a,b` or `["a", "b"]`."""
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a list: {error}") from error
        return [str(item) for item in items]
    return [item.strip() for item in text.split(",") if item.strip()]


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
