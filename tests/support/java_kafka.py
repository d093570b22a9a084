"""The command line tools of Apache Kafka itself, run by `java -cp` from the jars that the benchmark fetches too.

Tools are named as the scripts of the distribution are; which class a script runs differs between versions.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from headrace.bench import maven
from headrace.bench.errors import RivalUnavailable

VERSIONS: Final = (maven.KAFKA_PREVIOUS, maven.KAFKA_NEWEST)

_RUN_SECONDS_MAX: Final = 200.0
_TOOLS: Final = "org.apache.kafka.tools"

_CLASSES: Final = {
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
}
_CLASSES_BEFORE_4: Final = {
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
}

_OPTIONS: Final = {"kafka-consumer-groups": ("--timeout", "120000")}
"""What a tool is always told: of its own accord this one waits for five seconds."""

PATIENT_ADMIN: Final = "request.timeout.ms=120000\ndefault.api.timeout.ms=120000\n"
"""The same for tools that take it from a file only."""

_JVM_OPTIONS: Final = (
    # These processes live for a second: the first compiler is enough, and the machine has other things to do.
    "-XX:TieredStopAtLevel=1",
    "-Xmx256m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class KafkaTools:
    """The tools of one Kafka version. Making one skips the test where they cannot be had."""

    def __init__(self, version: str) -> None:
        try:
            self._java = maven.java_command()
            self._class_path = maven.kafka_class_path(version)
        except RivalUnavailable as reason:
            pytest.skip(str(reason))
        self.version = version
        self._classes = _CLASSES | _CLASSES_BEFORE_4 if version.startswith("3.") else _CLASSES

    def run(self, tool: str, *arguments: str, lines: list[str] | None = None) -> str:
        """Run to the end with `lines` as standard input; what it printed. Fails the test if the tool failed."""
        done = subprocess.run(
            self._command(tool, arguments),
            input="".join(f"{line}\n" for line in lines or []),
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS_MAX,
        )
        assert done.returncode == 0, f"{tool} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, tool: str, *arguments: str) -> Iterator["RunningTool"]:
        """A tool that does not end by itself, for as long as the block lasts."""
        process = subprocess.Popen(
            self._command(tool, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started = RunningTool(tool, process)
        try:
            yield started
        finally:
            process.terminate()
            process.wait(_RUN_SECONDS_MAX)
            started.join()

    def _command(self, tool: str, arguments: tuple[str, ...]) -> list[str]:
        return [
            self._java,
            *_JVM_OPTIONS,
            "-cp",
            self._class_path,
            self._classes[tool],
            *arguments,
            *_OPTIONS.get(tool, ()),
        ]


class RunningTool:
    """Collects what a tool prints while it runs."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.complaints: list[str] = []
        self._readers = [
            threading.Thread(target=_collect, args=(process.stdout, self.lines)),
            threading.Thread(target=_collect, args=(process.stderr, self.complaints)),
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The lines, once `condition` holds for them."""
        deadline = time.monotonic() + _RUN_SECONDS_MAX
        while not condition(self.lines):
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} printed only {self.lines[-20:]} and said {self.complaints[-20:]}")
            time.sleep(0.05)
        return list(self.lines)

    def join(self) -> None:
        for reader in self._readers:
            reader.join()


def _collect(stream: Iterator[str], into: list[str]) -> None:
    for line in stream:
        into.append(line.rstrip("\n"))
