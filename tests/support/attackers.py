"""Attacks on a node from a process of their own, so that they share no interpreter with whoever measures what others notice of them.

`Attacker` begins the process and has it prepare; each `run` is one attack. In the process, a line of standard input begins one and a line
of standard output says that it is over.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from tests.support import wasm
from tests.support.node import NodeProcess
from tests.support.quic_attacks import begin_and_leave, first_flight, flood, half_frames, noise, storm
from tests.support.raw_kafka import RawKafka, batch_of
from tests.support.stream_load import Load
from tests.support.wasm_api import Api

from headrace.clients.connection import split_address

ROOT: Final = Path(__file__).resolve().parents[2]
MODULE_PARTITIONS: Final = 4
SOUND: Final = "sound"
"""No attack: as many clients as hostile modules have, and a module that gives back what it is given."""
SOUND_AND_LARGE: Final = "sound and large"
"""The same with records as large as a hostile module makes of small ones: what writing so much costs, whoever made it."""
LARGE_OUTPUT: Final = "large output"
MODULES: Final[dict[str, bytes]] = {
    SOUND: wasm.per_message(wasm.SAME),
    SOUND_AND_LARGE: wasm.per_message(wasm.SAME),
    "endless loop": wasm.ENDLESS,
    **{
        name: wasm.HOSTILE[name][0]
        for name in ("grows", "deep recursion", "value points nowhere", "value is huge", "batch is huge", "alloc traps")
    },
    LARGE_OUTPUT: wasm.HOSTILE["value is as large as memory"][0],
}
BUSY_STREAMS: Final = "busy streams"
"""No attack: a client that writes over QUIC as fast as it can."""
_STREAMS: Final = 8
HALF_FRAMES: Final = "half frames"
DATAGRAMS: Final = ("noise", "amplification", "handshakes left", "addresses", HALF_FRAMES)
_PAUSE_S: Final = 0.005
"""Between two batches of one client, as the canary has it."""


def prepare(node: NodeProcess) -> None:
    """A topic for each module, and for each stream of a busy client."""
    Load(node.kafka, node.endpoints["quic"], node.pid).fill(_STREAMS, batches=1)
    api = Api(node)
    with RawKafka(node.kafka) as client:
        for number, code in enumerate(MODULES.values()):
            client.create_topic(f"hostile{number}", MODULE_PARTITIONS)
            api.assign(f"hostile{number}", api.upload(f"hostile{number}", code))


class Attacker:
    def __init__(self, name: str, node: NodeProcess, seconds: float) -> None:
        self.name = name
        address = node.kafka if name in MODULES else node.endpoints["quic"]
        command = [sys.executable, "-m", "tests.support.attackers", name, address, str(seconds)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Self:
        self._hear()
        return self

    def run(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"the attacker {self.name} died"

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _attack(name: str, address: str, seconds: float) -> Callable[[], None]:
    """Prepared, so that what it costs to prepare is not part of the attack."""
    if name in MODULES:
        values = [bytes(wasm.LARGE_VALUE)] * 3 if name == SOUND_AND_LARGE else [b"one", b"xtwo", b"three"]
        return lambda: _produce(address, f"hostile{list(MODULES).index(name)}", values, seconds)
    target = split_address(address)
    match name:
        case "noise":
            return lambda: flood(target, noise(7), seconds)
        case "amplification":
            return lambda: flood(target, _asking_for_answers(), seconds)
        case "handshakes left":
            flights = [first_flight() for _ in range(int(seconds * 300))]
            return lambda: begin_and_leave(target, flights)
        case "addresses":
            return lambda: asyncio.run(storm(target, seconds))
        case "half frames":
            return lambda: asyncio.run(half_frames(address, seconds))
        case "busy streams":
            return lambda: _write_over_quic(address, seconds)
        case _:
            raise ValueError(name)


def _write_over_quic(address: str, seconds: float) -> None:
    load = Load("", address, os.getpid())
    asyncio.run(load.produce("quic-one", streams=_STREAMS, seconds=seconds * 0.8))


def _asking_for_answers() -> Callable[[], bytes]:
    """Datagrams of strangers that a node answers: of a version it does not speak, and whole first ones."""
    flights = [first_flight()[0] for _ in range(50)]
    unknown = [b"\xc0\x0a\x0a\x0a\x0a" + each[5:] for each in flights]
    return itertools.cycle([*flights, *unknown]).__next__


def _produce(address: str, topic: str, values: list[bytes], seconds: float) -> None:
    """A client for each partition, one batch after the other."""
    end = time.monotonic() + seconds

    def produce(partition: int) -> None:
        with RawKafka(address, timeout=60) as client:
            while time.monotonic() < end:
                client.produce(topic, partition, batch_of(values))
                time.sleep(_PAUSE_S)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(MODULE_PARTITIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def main(name: str, address: str, seconds: str) -> None:
    attack = _attack(name, address, float(seconds))
    print("ready", flush=True)
    for _ in sys.stdin:
        attack()
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
