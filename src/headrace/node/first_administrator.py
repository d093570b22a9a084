"""The first administrator of a node in a container, where nobody can type: a file has the password, and a variable names the file."""

import os
from pathlib import Path
from typing import Final

import structlog

from headrace.broker.access.service import Access
from headrace.errors import Invalid

ADMIN_PASSWORD_FILE: Final = "HEADRACE_ADMIN_PASSWORD_FILE"
ADMIN_NAME: Final = "admin"

log = structlog.get_logger(__name__)


async def ensure_administrator(access: Access) -> None:
    """One that is there already keeps the password that it has."""
    path = os.environ.get(ADMIN_PASSWORD_FILE)
    if path and await access.ensure_administrator(ADMIN_NAME, _read_password(path)):
        log.info("first administrator made", user=ADMIN_NAME)


def _read_password(path: str) -> str:
    try:
        password = Path(path).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{ADMIN_PASSWORD_FILE}: cannot read {path}: {error}") from error
    if not password:
        raise Invalid(f"{ADMIN_PASSWORD_FILE}: {path} is empty")
    return password
