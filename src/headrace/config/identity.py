"""A broker's own name, made up once and kept: a node that comes back must be the one that left."""

import os
from pathlib import Path
from typing import Final

from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.config.server import ServerSettings
from headrace.errors import Invalid

_NAME_LENGTH_MAX: Final = 128
"""As of the setting `broker.id`."""


def broker_id(settings: ServerSettings, *, former: str | None = None, chance: Chance = SYSTEM_CHANCE) -> str:
    """The name in `broker.id`, or the one kept in `data.dir`, or a new one kept there from now on.

    `former` is the name that everything but that file remembers: a node that has lost the file keeps it.
    """
    if settings.broker_id is not None:
        return settings.broker_id
    path = Path(settings.data_dir) / "broker.id"
    try:
        return _kept(path) or _keep(path, former or f"headrace-{chance.randbytes(4).hex()}")
    except OSError as error:
        raise Invalid(f"data.dir: cannot keep the broker's name in {path}: {error.strerror}") from error


def _kept(path: Path) -> str | None:
    if not path.exists():
        return None
    name = path.read_bytes().decode("utf-8", "replace").strip()
    if not 1 <= len(name) <= _NAME_LENGTH_MAX or not name.isprintable() or "\ufffd" in name:
        raise Invalid(
            f"{path} does not hold a broker's name any more: write the name into it, or set broker.id; or remove the file, and the "
            "node goes on under the name that its metastore remembers"
        )
    return name


def _keep(path: Path, name: str) -> str:
    # Renamed into place: a crash halfway must not leave a broker whose name is empty.
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("w") as file:
        file.write(name + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return name
