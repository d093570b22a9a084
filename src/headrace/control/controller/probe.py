"""Refused is proof enough: where a broker listened and nobody does, its process is gone."""

import asyncio
from typing import Final

from headrace.control import values_pb2 as pb

_PATIENCE_S: Final = 0.3


async def is_refused(registration: pb.BrokerRegistration) -> bool:
    """Whether its machine says that nobody listens there. Silence, or any other trouble, proves nothing."""
    if not registration.host or not registration.port_kafka:
        return False
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(registration.host, registration.port_kafka)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
