"""A Logjam door that cannot take all its ports says so and lets go of those it has."""

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.metastores import ManualClock

from headrace.doors.logjam.server import LogjamDoor
from headrace.doors.logjam.settings import LogjamSettings
from headrace.errors import Fault
from headrace.telemetry.metrics import Metrics


async def test_a_taken_port_fails_the_start_and_the_stop_does_not_hang() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = LogjamSettings(
            listen_router="127.0.0.1:0",
            listen_pull=f"127.0.0.1:{port}",
            listen_pub="127.0.0.1:0",
            listen_live="127.0.0.1:0",
        )
        broker = SimpleNamespace(metrics=Metrics(), clock=ManualClock(), identity=SimpleNamespace(addresses={}))
        door = LogjamDoor(settings, cast(Any, broker))
        with pytest.raises(Fault) as raised:
            await door.start()
        assert (
            str(raised.value)
            == f"listen.logjam.pull: cannot listen on 127.0.0.1:{port}: Address already in use; is another node running? listen.logjam.pull names another address"
        )
        await door.stop()
