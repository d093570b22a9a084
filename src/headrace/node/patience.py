"""Waiting for another process that may be starting just now."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from headrace.errors import Unavailable
from headrace.telemetry.logging import get_logger

_AGAIN_S: Final = 0.2

log = get_logger(__name__)

T = TypeVar("T")


async def patiently(reach: Callable[[], Awaitable[T]], *, patience_s: float) -> T:
    """What `reach` gives once it can; the last `Unavailable` when it could not in all that time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    is_said = False
    while True:
        try:
            return await reach()
        except Unavailable as error:
            if loop.time() >= deadline:
                raise
            if not is_said:
                log.info("waiting", reason=str(error))
                is_said = True
        await asyncio.sleep(_AGAIN_S)
