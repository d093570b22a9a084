"""HTTP/3 on the QUIC door's port, asked by aioquic."""

import asyncio
import base64
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.node import NodeProcess, running_node
from tests.support.quic import foreign_http


def over_tcp(node: NodeProcess, path: str) -> object:
    with urllib.request.urlopen(f"http://{node.endpoints['admin']}{path}", timeout=10) as answer:
        return json.loads(answer.read())


@pytest.mark.requirement("R3.62")
async def test_health_and_the_reads_of_the_api_are_served(quic: str, topic: str, node: NodeProcess) -> None:
    async with foreign_http(quic) as http:
        status, body = await http.ask("/health")
        assert status == 200
        health = json.loads(body)
        assert health["doors"]["quic"] == quic
        assert len(health["quic_fingerprint"].split(":")) == 32
        for path in ("/api/v1/topics", f"/api/v1/topics/{topic}", "/api/v1/cluster"):
            status, body = await http.ask(path)
            same = await asyncio.to_thread(over_tcp, node, path)
            assert (status, json.loads(body)) == (200, same), path


async def test_changes_and_pages_are_the_admin_doors(quic: str, node: NodeProcess) -> None:
    async with foreign_http(quic) as http:
        status, _ = await http.ask(
            "/api/v1/topics", method="POST", body=b'{"name":"x"}', headers={"content-type": "application/json"}
        )
        assert status == 405
        for path in ("/", "/metrics", "/topics"):
            assert (await http.ask(path))[0] == 404
        assert (await http.ask("/health", method="HEAD"))[0] == 200
        assert (await http.ask("/health"))[0] == 200


async def test_the_admin_doors_own_rules_hold(quic: str) -> None:
    async with foreign_http(quic) as http:
        status, body = await http.ask("/api/v1/topics", authority="evil.example")
        assert status == 403, body
        assert b"admin.hosts" in body


@pytest.mark.slow
def test_logins_are_those_of_the_admin_door(tmp_path: Path) -> None:
    """Who is asked who they are there is asked here, and sees what they may see."""
    with running_node(tmp_path / "data", {"security.authorization.enable": "true"}) as node:
        for words in (("user", "create", "root", "--super"), ("user", "create", "guest")):
            command = [sys.executable, "-m", "headrace", *words, "--local", str(node.data_dir)]
            subprocess.run(command, check=True, capture_output=True, text=True, input="wood and water 7391\n")

        async def ask() -> list[int]:
            found = []
            async with foreign_http(node.endpoints["quic"]) as http:
                for who in ("", "nobody:wood and water 7391", "guest:wood and water 7391", "root:wood and water 7391"):
                    shown = {"authorization": f"Basic {base64.b64encode(who.encode()).decode()}"} if who else {}
                    found.append((await http.ask("/api/v1/cluster", headers=shown))[0])
            return found

        assert asyncio.run(ask()) == [401, 401, 403, 200]
