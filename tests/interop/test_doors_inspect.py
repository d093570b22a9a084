"""The inspector reads what real clients and a real node said to each other."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.support.node import NodeProcess, eventually

from headrace.clients import BlockingMlogClient, BlockingRustLogClient, LogjamClient


class Recorder:
    """Passes one connection's bytes on and keeps what each side sent."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent, self.received = bytearray(), bytearray()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self._target.rpartition(":")
            server = socket.create_connection((host, int(port)))
            for source, target, kept in ((client, server, self.sent), (server, client, self.received)):
                threading.Thread(target=self._pass_on, args=(source, target, kept), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(65_536):
                kept += data
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()

    def close(self) -> None:
        self._listener.close()


def inspected(tmp_path: Path, protocol: str, recorder: Recorder, **options: Path) -> list[dict[str, Any]]:
    capture = tmp_path / "capture"
    capture.write_bytes(recorder.sent)
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "inspect", protocol, str(capture), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_rustlog(node: NodeProcess, tmp_path: Path) -> None:
    recorder = Recorder(node.endpoints["rustlog"])
    with BlockingRustLogClient(recorder.address) as client:
        client.create_topic("inspected")
        client.produce("inspected", [b"hi"])
    assert [each["name"] for each in inspected(tmp_path, "rustlog", recorder)] == ["CreateTopic", "Produce"]
    recorder.sent = recorder.received
    names = [each["name"] for each in inspected(tmp_path, "rustlog", recorder)]
    assert names == ["CreateTopicResponse", "ProduceResponse"]


def test_mlog(node: NodeProcess, tmp_path: Path) -> None:
    recorder = Recorder(node.endpoints["mlog"])
    with BlockingMlogClient([recorder.address]) as client:
        client.list_topics()
        client.find_raft_leader()
    names = [each["name"] for each in inspected(tmp_path, "mlog", recorder)]
    assert names == ["ListTopicsRequest", "FindRaftLeaderRequest"]


def test_logjam(node: NodeProcess, tmp_path: Path) -> None:
    recorder = Recorder(node.endpoints["logjam_router"])
    with LogjamClient(f"tcp://{recorder.address}") as client:
        client.request("inspected-production", "logs", b'{"action":"A#b"}')
    seen = inspected(tmp_path, "logjam", recorder)
    assert [each["name"] for each in seen] == ["greeting", "command READY", "data"]
    assert seen[2]["content"]["body"] == '{"action":"A#b"}'


def test_kafka(node: NodeProcess, tmp_path: Path) -> None:
    recorder = Recorder(node.kafka)
    producer = Producer({"bootstrap.servers": recorder.address, "client.id": "inspected"})
    metadata = producer.list_topics(timeout=60)
    assert metadata.brokers
    eventually(lambda: len(recorder.received) > 100, 60, "answers")
    responses = tmp_path / "responses"
    responses.write_bytes(recorder.received)
    seen = inspected(tmp_path, "kafka", recorder, responses=responses)
    names = [each["name"].split()[0] for each in seen]
    assert names[0] == "ApiVersionsRequest"
    assert {"MetadataRequest", "ApiVersionsResponse", "MetadataResponse"} <= set(names)
    assert seen[0]["content"]["client_id"] == "inspected"
