"""Sleep with an alarm: for the tier's loops, which work when somebody asks and look again by themselves now and then."""

import asyncio


async def woken(wanted: asyncio.Event, *, within_s: float) -> bool:
    """Until `wanted` is set, which it says, or the time is over.

    It is cleared first thing after, so that no wish made meanwhile is lost.
    """
    try:
        async with asyncio.timeout(within_s):
            await wanted.wait()
    except TimeoutError:
        pass
    is_wanted = wanted.is_set()
    wanted.clear()
    return is_wanted
