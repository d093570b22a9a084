"""A node, a producer that never stops, and a Spark process reading from them: each may be killed, at a named place or any time.

The worker stands still at the place it was told (`hold`), the victim is killed by -9 from outside, and everything goes on.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, Self

from confluent_kafka import Producer
from tests.support.node import NodeProcess, eventually
from tests.support.pipelines import create_topic, read_committed
from tests.support.ports import kept_port
from tests.support.processes import descendants_of, jvm_of, program_of

from headrace.pipeline.failpoints import REACHED_SUFFIX, VARIABLE

Victim = Literal["driver", "jvm", "workers", "broker", "sender"]
"""The Python driver, its JVM, the JVM's Python workers, the node; and the process in which Spark runs the sink's commit."""

PARTITIONS: Final = 2
REACH_S: Final = 600.0
END_S: Final = 120.0
FINISHES_MAX: Final = 3
"""A machine busy with others may fail to start a Python worker in the ten seconds that Spark gives it."""

Place = tuple[int, int]
"""Partition and offset."""


class Arena:
    """Started by `with`; ends everything it started."""

    def __init__(
        self,
        directory: Path,
        worker: list[str],
        *,
        until_killed: str = "",
        until_done: str = "",
        node_settings: Mapping[str, object] | None = None,
    ) -> None:
        """`worker` is the module and arguments of the process under test; `{brokers}` in them is the node's address.

        `until_killed` and `until_done` are arguments that make it run on, and end when it has caught up.
        """
        self._ending = ExitStack()
        self.brokers = f"127.0.0.1:{self._ending.enter_context(kept_port())}"
        settings = {"listen.kafka": self.brokers, "tier.upload.interval.ms": 3000}
        self.node = NodeProcess(directory / "node", settings | dict(node_settings or {}))
        self._log = (directory / "worker.log").open("ab")
        self._command = [sys.executable, "-m", *(part.format(brokers=self.brokers) for part in worker)]
        self._until_killed, self._until_done = until_killed, until_done
        self._armed = directory / "armed"
        self._reached = directory / f"armed{REACHED_SUFFIX}"
        self._worker: subprocess.Popen[bytes] | None = None
        self.acknowledged: dict[Place, bytes] = {}
        self._is_producing = True
        self._producer = threading.Thread(target=self._produce, name="producer")
        self.kill_count = 0
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self.node.start()
        for topic in ("orders", "copies"):
            create_topic(self.brokers, topic, PARTITIONS)
        self._producer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_producing = False
        self._producer.join()
        if self._worker is not None:
            self._kill_worker(self._worker.pid)
        self.node.kill()
        self._log.close()
        self._ending.close()

    def kill_at(self, place: str, victim: Victim, *, time_there: int = 1) -> None:
        """Kill -9 while the worker stands at `place`."""
        self._reached.unlink(missing_ok=True)
        self._armed.write_text(f"{place}:{time_there}:hold")
        worker = self._running_worker()

        def is_reached() -> bool:
            assert worker.poll() is None, f"the worker ended with {worker.returncode} before {place}"
            return self._reached.exists()

        eventually(is_reached, REACH_S, f"nobody came to {place}")
        self._armed.unlink()
        holder = int(self._reached.read_text())
        try:
            self._kill(victim, worker, holder, place)
        finally:
            self._reached.unlink(missing_ok=True)
        self._recover(victim, worker)

    def kill_any_time(self, chance: random.Random, victim: Victim) -> None:
        worker = self._running_worker()
        eventually(lambda: jvm_of(worker.pid) is not None, REACH_S, "the JVM did not start")
        time.sleep(chance.uniform(1, 15))
        self._kill(victim, worker, holder=worker.pid, place="any time")
        self._recover(victim, worker)

    @contextmanager
    def another_worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        """A second one, started by mistake; it holds nowhere."""
        command = [*self._command, self._until_killed]
        worker = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait()

    def finish(self) -> None:
        """Stop producing, then let the worker catch up with everything and end."""
        self._is_producing = False
        self._producer.join()
        if self._worker is not None:
            self._kill_worker(self._worker.pid)
        command = [*self._command, self._until_done]
        for _ in range(FINISHES_MAX):
            done = subprocess.run(command, stdout=self._log, stderr=self._log, timeout=900, check=False)
            if done.returncode == 0:
                return
        raise AssertionError(f"{FINISHES_MAX} last runs, with nobody killed, failed")

    def read(self, topic: str) -> dict[Place, bytes]:
        """What a reader of committed records finds, by place."""
        messages = read_committed(self.brokers, topic, PARTITIONS)
        return {(message.partition(), message.offset()): message.value() for message in messages}

    def _running_worker(self) -> "subprocess.Popen[bytes]":
        if self._worker is None or self._worker.poll() is not None:
            environment = {**os.environ, VARIABLE: f"@{self._armed}"}
            command = [*self._command, self._until_killed]
            self._worker = subprocess.Popen(command, env=environment, stdout=self._log, stderr=self._log)
        return self._worker

    def _kill(self, victim: Victim, worker: "subprocess.Popen[bytes]", holder: int, place: str) -> None:
        self.kill_count += 1
        print(f"{time.monotonic() - self._began:6.0f} s: kill {self.kill_count}, {victim}, {place}", flush=True)
        match victim:
            case "broker":
                self.node.kill()
            case "jvm":
                jvm = jvm_of(worker.pid)
                assert jvm is not None
                os.kill(jvm, signal.SIGKILL)
            case "workers":
                jvm = jvm_of(worker.pid)
                assert jvm is not None
                for process_id in descendants_of(jvm):
                    if "python" in program_of(process_id):
                        with suppress(ProcessLookupError):
                            os.kill(process_id, signal.SIGKILL)
            case "sender":
                assert holder != worker.pid
                os.kill(holder, signal.SIGKILL)
            case "driver":
                self._kill_worker(worker.pid)

    def _kill_worker(self, driver: int) -> None:
        """The driver alone: its JVM has to notice, and go, so that nobody works on without supervision."""
        jvm = jvm_of(driver)
        assert self._worker is not None
        self._worker.kill()
        self._worker.wait()
        if jvm is not None:
            self._reached.unlink(missing_ok=True)
            eventually(lambda: not _is_alive(jvm), END_S, "a JVM without a driver goes on")

    def _recover(self, victim: Victim, worker: "subprocess.Popen[bytes]") -> None:
        if victim == "broker":
            self.node.start()
        elif victim == "jvm":
            assert worker.wait(END_S) != 0, "a driver without a JVM says that all is well"

    def _produce(self) -> None:
        """Fifty records a second at most, every fifth poison, over every death of the node."""

        # librdkafka calls back with its own classes, which have no types.
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            self.acknowledged[message.partition(), message.offset()] = message.value()

        producer = Producer(
            {
                "bootstrap.servers": self.brokers,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "linger.ms": 5,
            }
        )
        number = 0
        while self._is_producing:
            value = b"poison %d" % number if number % 5 == 0 else b'{"id": %d}' % number
            producer.produce("orders", value=value, key=b"%d" % number, on_delivery=on_delivery)
            producer.poll(0.02)
            number += 1
        assert producer.flush(120) == 0


def _is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
