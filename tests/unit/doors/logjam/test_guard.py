"""The guard of accepted connections lets go of everything it has opened."""

import asyncio

import zmq

from headrace.doors.logjam.guard import AcceptGuard
from headrace.doors.logjam.metrics import LogjamMetrics


async def test_a_guarded_socket_does_not_keep_its_context_from_ending() -> None:
    context = zmq.Context()
    listener: zmq.Socket[bytes] = context.socket(zmq.PULL)
    listener.bind("tcp://127.0.0.1:*")
    guard = AcceptGuard(listener, LogjamMetrics())
    guard.open()
    guard.close()
    listener.close(linger=0)
    ended = asyncio.get_running_loop().run_in_executor(None, context.term)
    try:
        async with asyncio.timeout(20):
            await asyncio.shield(ended)
    finally:
        guard._monitor.close(linger=0)
        await ended
