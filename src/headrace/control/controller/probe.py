"""Refused is proof enough: where a broker listened and nobody does, its process is gone."""

import asyncio
from typing import Final

from headrace.control import values_pb2 as pb

_PATIENCE_S: Final = 0.3


async def is_refused(registration: pb.BrokerRegistration) -> bool:
    """Whether its machine says that nobody listens there. Silence, or any other trouble, proves nothing."""
    if not registration.host or not registration.port_kafka:
        return False
    return await _is_closed(registration.host, registration.port_kafka)


async def is_endpoint_refused(endpoint: str) -> bool:
    """The same of `host:port`."""
    host, _, port = endpoint.rpartition(":")
    return bool(host) and port.isdecimal() and await _is_closed(host.strip("[]"), int(port))


async def _is_closed(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
