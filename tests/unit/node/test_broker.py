"""A broker of several that is told to stop stops, whatever it was waiting for."""

import asyncio
import socket
import time
from pathlib import Path

import pytest

from headrace.config.load import load
from headrace.node.broker import BrokerProcess, End

pytestmark = pytest.mark.timeout(20)
"""Less than any of a broker's own patience."""


def broker(directory: Path) -> BrokerProcess:
    """Its only controller is at a port where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    settings = load(
        file=None,
        environ={},
        assignments=[f"data.dir={directory}", f"controller.endpoints=127.0.0.1:{port}", "object_store.type=local"],
        is_ephemeral=True,
        role="broker",
    )
    return BrokerProcess(settings, on_ready=lambda endpoints: None)


async def test_one_that_waits_for_controllers(tmp_path: Path) -> None:
    process = broker(tmp_path)
    asyncio.get_running_loop().call_later(0.3, process.stop)
    begun = time.monotonic()
    assert await process.run() == 0
    assert time.monotonic() - begun < 10


async def test_one_that_was_fenced_and_is_about_to_register_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = broker(tmp_path)
    lives = 0

    async def live() -> End:
        nonlocal lives
        lives += 1
        asyncio.get_running_loop().call_soon(process.stop)
        return End.FENCED if lives == 1 else await asyncio.Future()

    monkeypatch.setattr(process, "_live", live)
    assert await process.run() == 0
    assert lives == 1
