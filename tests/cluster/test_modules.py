"""Wasm modules with several brokers: what one uploads and assigns, all of them run; and a partition takes its module along."""

import asyncio
import base64
from pathlib import Path

from tests.support import wasm
from tests.support.shared_nodes import SharedNodes, shared_nodes
from tests.support.wasm_api import ask_address

from headrace.clients import MlogClient, RetryPolicy

PATIENT = RetryPolicy(attempts_max=40)
SETTINGS = {"listen.admin": "127.0.0.1:0", "listen.grpc": "127.0.0.1:0", "listen.quic": "127.0.0.1:0"}


async def ask(nodes: SharedNodes, name: str, method: str, path: str, body: object = None):  # type: ignore[no-untyped-def]
    return await asyncio.to_thread(ask_address, nodes.members[name].address_of("admin"), method, path, body)


async def test_what_one_broker_assigns_all_of_them_run(tmp_path: Path) -> None:
    async with (
        shared_nodes(tmp_path, ("a", "b"), SETTINGS) as nodes,
        MlogClient([nodes.members["a"].address_of("mlog")], retry=PATIENT) as client,
    ):
        assert await client.create_topic("orders", leader="b") == ("b",)
        content = base64.b64encode(wasm.UPPER).decode()
        uploaded = await ask(nodes, "a", "POST", "/wasm/modules", {"name": "upper", "content": content})
        module = uploaded["module"]["id"]
        # The other one leads the topic; it hears of the assignment by its watch.
        await ask(nodes, "a", "POST", "/topics/orders/wasm", {"module": module})
        await _until_assigned(nodes, "b", module)
        await client.produce("orders", b"one")
        assert (await _refusal(nodes, "b", module)).count("assigned to orders") == 1
        await nodes.move("b", ["a"])
        async with asyncio.timeout(60):
            while await client.find_topic_leader("orders") != nodes.members["a"].address_of("mlog"):
                await asyncio.sleep(0.05)
        await client.produce("orders", b"two")
        found = await client.fetch_batch("orders", offset=0, count_max=10)
        assert [each.Value for each in found] == [b"ONE", b"TWO"]
        await ask(nodes, "b", "POST", "/topics/orders/wasm", {"module": ""})
        await _until_assigned(nodes, "a", "")
        await client.produce("orders", b"three")
        last = await client.fetch("orders", offset=2)
        assert last is not None
        assert last.Value == b"three"
        await ask(nodes, "b", "DELETE", f"/wasm/modules/{module}")


async def _until_assigned(nodes: SharedNodes, name: str, module: str) -> None:
    async with asyncio.timeout(60):
        while True:
            detail = await ask(nodes, name, "GET", "/topics/orders")
            if detail["config"].get("wasm.module.id", "") == module:
                return
            await asyncio.sleep(0.05)


async def _refusal(nodes: SharedNodes, name: str, module: str) -> str:
    try:
        await ask(nodes, name, "DELETE", f"/wasm/modules/{module}")
    except AssertionError as error:
        return str(error)
    return ""
