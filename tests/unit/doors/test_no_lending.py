"""A system that does not let memory be lent to sockets."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.doors.sending import send_ready, send_through_transports

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(send_ready is send_through_transports, reason="the extension was not built")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a system that lends nothing")
def test_where_nothing_can_be_lent_all_is_copied(tmp_path: Path) -> None:
    shim = tmp_path / "no_lending.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(ROOT / "tests/support/no_lending.c")], check=True)
    script = """
import asyncio
from tests.unit.doors.test_sending import MIB, connected, lendable

async def main():
    memory = lendable(b"x" * MIB), lendable(b"y" * MIB)
    async with connected() as client:
        for piece in memory:
            (slot,) = await client.ask(1)
            slot.fill((b"head", memoryview(piece), b"foot"))
            assert await client.receive(MIB + 8) == b"head" + piece[:] + b"foot"
    assert memory[0].is_lent, "tried once"
    assert not memory[1].is_lent, "and not again"

asyncio.run(main())
"""
    environment = {**os.environ, "LD_PRELOAD": str(shim)}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, env=environment, timeout=120)
