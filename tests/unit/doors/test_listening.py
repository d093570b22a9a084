"""A door that cannot listen says which setting, which address and why, each once."""

import asyncio
import socket

import pytest

from headrace.doors.listening import listen
from headrace.errors import Fault


async def test_a_taken_port_is_said_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Fault) as raised:
            await listen(asyncio.get_running_loop(), asyncio.Protocol, address, key="listen.kafka")
    way_on = "; is another node running? listen.kafka names another address"
    assert str(raised.value) == f"listen.kafka: cannot listen on {address}: Address already in use{way_on}"


async def test_a_host_nobody_knows_is_said_with_the_resolvers_words() -> None:
    with pytest.raises(Fault, match=r"^listen\.kafka: cannot listen on \[no host\]:1: \w+"):
        await listen(asyncio.get_running_loop(), asyncio.Protocol, "[no host]:1", key="listen.kafka")
