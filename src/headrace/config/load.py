"""From what people wrote to `NodeSettings`, or one message that names every key that is wrong.

Precedence, weakest first: the declared default, that of one node, the file, the environment, `--ephemeral`,
`--set`. Loading reads; it creates nothing.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT

from headrace.config.keys import Key, all_keys
from headrace.config.listeners import listener_keys, listeners
from headrace.config.memory import memory_bytes
from headrace.config.openness import doubtful_listeners, passwords_in_the_clear
from headrace.config.roles import Role, wrong_for
from headrace.config.settings import NodeSettings, sections
from headrace.config.sources import Given, from_environment, from_file, from_flags, read_list
from headrace.doors.quic.settings import OFF
from headrace.errors import Invalid, suggest

PERCENT_OF_MEMORY: Final[Mapping[str, int]] = {"cache.write.size.bytes": 10, "cache.read.size.bytes": 25}
"""Defaults that follow the machine's memory, or its container's."""


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    assignments: Iterable[str] = (),
    is_ephemeral: bool = False,
    role: Role = "node",
) -> NodeSettings:
    """Raises `Invalid` with a line for each key that is unknown, missing, of the wrong type or out of range."""
    environ = os.environ if environ is None else environ
    given = from_file(file) if file else {}
    flags = from_flags(assignments)
    keys = all_keys() | listener_keys([*given, *flags], environ)
    given |= from_environment(environ, keys)
    if is_ephemeral:
        given |= _free_ports(keys)
    given |= flags

    problems: list[str] = []
    values = _read_all(given, keys, problems)
    defaults = _defaults_of_machine() | _defaults_of_role(role, values, keys)
    for name, value in defaults.items():
        if name in keys:
            values.setdefault(name, value)
    _check_addresses(values, keys, problems)
    _check_required(values, keys, problems, role)
    settings = None if problems else _build(values, keys, problems)
    if settings is not None:
        if role != "controller":
            problems += (*doubtful_listeners(settings), *passwords_in_the_clear(settings))
        problems += wrong_for(role, settings)
    if settings is None or problems:
        raise Invalid("settings:\n" + "\n".join(f"  {problem}" for problem in problems))
    return settings


def _read_all(given: Mapping[str, Given], keys: Mapping[str, Key], problems: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, item in given.items():
        key = keys.get(name)
        if key is None:
            problems.append(f"{name}: no such key ({item.origin}){suggest(name, keys)}")
            continue
        try:
            values[name] = _read(item, key)
        except (msgspec.ValidationError, ValueError) as error:
            problems.append(f"{name}: {_reason(error, key)}, got {item.value!r} ({item.origin})")
    return values


def _read(item: Given, key: Key) -> object:
    value = item.value
    if item.is_text and get_origin(key.type) in (tuple, list):
        value = read_list(str(value))
    return msgspec.convert(value, key.type, strict=not item.is_text)


def _reason(error: Exception, key: Key) -> str:
    """What was expected. msgspec says it well but for the choices of a Literal, and adds what it got."""
    if get_origin(key.type) is Literal:
        return "expected one of " + ", ".join(get_args(key.type))
    reason = str(error).replace("`", "").partition(", got ")[0]
    return reason[:1].lower() + reason[1:]


def _defaults_of_machine() -> dict[str, object]:
    memory = memory_bytes()
    return {name: memory * percent // 100 for name, percent in PERCENT_OF_MEMORY.items()}


def _defaults_of_role(role: Role, values: Mapping[str, object], keys: Mapping[str, Key]) -> dict[str, object]:
    """A node alone has everything under `data.dir`, and listens to nobody but this machine; others keep what is declared."""
    data_dir = Path(str(values.get("data.dir", keys["data.dir"].default)))
    if role != "node":
        return {"wal.path": str(data_dir / "wal"), "pipeline.enable": False}
    is_open = values.get("security.open", keys["security.open"].default)
    return {
        **({} if is_open else _on_loopback(keys)),
        "wal.path": str(data_dir / "wal"),
        "object_store.type": "local",
        "object_store.local.path": str(data_dir / "objects"),
    }


def _on_loopback(keys: Mapping[str, Key]) -> dict[str, object]:
    """Closed until opened: the ports of the settings reference, for nobody but this machine."""
    return {
        name: "127.0.0.1:" + str(key.default).rpartition(":")[2]
        for name, key in keys.items()
        if name.startswith("listen.")
    }


def _free_ports(keys: Mapping[str, Key]) -> dict[str, Given]:
    return {
        name: Given("127.0.0.1:0", "--ephemeral")
        for name, key in keys.items()
        if key.is_address and key.field.startswith("listen")
    }


def _check_addresses(values: Mapping[str, object], keys: Mapping[str, Key], problems: list[str]) -> None:
    for name, value in values.items():
        may_be_off = name == "listen.quic" and value == OFF
        if keys[name].is_address and value is not None and not may_be_off and not _is_address(str(value)):
            problems.append(f"{name}: expected host:port with a port of 0 to 65535, got {value!r}")


def _is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isascii() and port.isdigit() and int(port) <= 65_535


def _check_required(values: Mapping[str, object], keys: Mapping[str, Key], problems: list[str], role: Role) -> None:
    problems.extend(
        f"{key.name}: required, and nobody gave it"
        for key in keys.values()
        if key.default is NODEFAULT and key.name not in values
    )
    if role == "controller":
        return  # It never sees the object store.
    store = values.get("object_store.type", keys["object_store.type"].default if "object_store.type" in keys else "")
    bucket = f"object_store.{store}.bucket"
    if bucket in keys and not values.get(bucket):
        problems.append(f"{bucket}: required when object_store.type is {store}")


def _build(values: Mapping[str, object], keys: Mapping[str, Key], problems: list[str]) -> NodeSettings:
    given: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        given.setdefault(keys[name].section, {})[keys[name].field] = value
    settings = NodeSettings(**{part.name: part.type(**given.get(part.name, {})) for part in sections()})
    return msgspec.structs.replace(settings, listeners=listeners(settings, given, problems))
