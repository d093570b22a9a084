"""Readers that ask for much and take nothing, of memory that is lent to their sockets: what they pin is bounded, and ends.

Each pins chunks of the tail that nobody else needs any more. A chunk is lent once several times its size was read from it
(ADR 0014), so somebody else reads first.
"""

import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.canary import rss_bytes
from tests.support.node import NodeProcess, eventually, running_node
from tests.support.raw_kafka import RawKafka, batch_of

TOPIC = "pages"
MIB = 1024 * 1024
READERS = 50
TAIL_BYTES = 16 * MIB
CHUNK_BYTES = 2 * MIB
ROUNDS = 2

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    settings = {
        "wal.capacity.bytes": 512 * MIB,
        "cache.write.size.bytes": TAIL_BYTES,
        "tier.upload.interval.ms": 3_600_000,  # Uploads have memory of their own, and would blur the picture.
    }
    with running_node(tmp_path / "data", settings) as node:
        yield node


def test_readers_of_lent_pages_that_take_nothing_and_vanish_leave_nothing_behind(node: NodeProcess) -> None:
    with RawKafka(node.kafka, timeout=30.0, receive_buffer=8 * MIB) as writer:
        writer.create_topic(TOPIC)
        for _ in range(16):
            write(writer)  # So that the tail, its spare chunks and the buffers are what they will be.
        pipes = open_files(node)["pipe"]
        lend(writer, write(writer))
        files = open_files(node)
        if files["pipe"] == pipes:
            pytest.skip("this system lends no pages")
        before, worst = rss_bytes(node), 0
        for _ in range(ROUNDS):
            readers = []
            for _ in range(READERS):
                offset = write(writer)
                lend(writer, offset)
                readers.append(ask(node, offset))
            worst = max(worst, rss_bytes(node) - before)
            eventually(lambda: open_files(node)["socket"] >= files["socket"] + READERS, 60.0, "readers are missing")
            for reader in readers:
                vanish(reader)
            eventually(
                lambda: open_files(node) <= files, 60.0, "files stayed open", lambda: f"{open_files(node)} were {files}"
            )
            for _ in range(16):
                write(writer)  # Chunks that nobody points into any more are found when one is needed.
            eventually(
                lambda: rss_bytes(node) - before < TAIL_BYTES + 32 * MIB,
                60.0,
                "memory did not come back",
                lambda: f"{(rss_bytes(node) - before) / MIB:.0f} MiB",
            )
    assert worst < READERS * 2 * CHUNK_BYTES + TAIL_BYTES + 32 * MIB, f"{worst / MIB:.0f} MiB"


def write(client: RawKafka) -> int:
    """A batch that fills half a chunk; its offset."""
    answer = client.produce(TOPIC, 0, batch_of([os.urandom(1024) * 900]))
    assert answer.error_code == 0
    return answer.base_offset


def lend(client: RawKafka, offset: int) -> None:
    """Read it until its chunk is no longer copied."""
    for _ in range(6 * CHUNK_BYTES // MIB):
        assert client.fetch(TOPIC, 0, offset, max_bytes=MIB).records


def ask(node: NodeProcess, offset: int) -> RawKafka:
    reader = RawKafka(node.kafka, receive_buffer=16 * 1024)
    reader.send_fetch(TOPIC, 0, offset, max_bytes=MIB)
    return reader


def vanish(reader: RawKafka) -> None:
    """Without a goodbye: the connection is reset."""
    reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reader.close()


def open_files(node: NodeProcess) -> Counter[str]:
    """How many the node has of each kind."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{node.pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        found[target.partition(":")[0] if ":" in target else "file"] += 1
    return found
