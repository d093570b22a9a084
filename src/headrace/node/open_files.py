"""The limit on open files: each connection is one."""

import resource
from typing import Final

import structlog

WANTED: Final = 65_536

log = structlog.get_logger(__name__)


def raise_open_file_limit() -> int:
    """Raise the soft limit as far as allowed; says so when that is less than a busy broker wants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    if soft != resource.RLIM_INFINITY and soft < WANTED:
        log.warning(
            "few open files allowed: connections beyond the limit are refused",
            limit=soft,
            wanted=WANTED,
            fix="ulimit -n",
        )
    return soft
