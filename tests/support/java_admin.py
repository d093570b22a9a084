"""Apache Kafka's Java AdminClient, asked one question after the other by one process that keeps running."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.java import compile_java, java

from headrace.bench import maven
from headrace.bench.errors import RivalUnavailable

_PROGRAM = Path(__file__).parent / "java_programs" / "AdminCalls.java"


class JavaAdminError(Exception):
    """What the client raised: `name` is the exception's class."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class JavaAdmin:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, bootstrap: str, verb: str, *arguments: object) -> object:
        """What the client that began at `bootstrap` answers; the verbs are those of `AdminCalls.java`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([bootstrap, verb, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client ended at {verb} {arguments}"
        answer = json.loads(line)
        if "error" in answer:
            raise JavaAdminError(answer["error"], answer["message"])
        found: object = answer["answer"]
        return found


@contextmanager
def java_admin(directory: Path, version: str = maven.KAFKA_NEWEST) -> Iterator[JavaAdmin]:
    """Compiled into `directory`. Skips the test where Java or the jars cannot be had."""
    try:
        library = Path(maven.kafka_class_path(version).removesuffix("/*"))
    except RivalUnavailable as reason:
        pytest.skip(str(reason))
    classes = compile_java(_PROGRAM, library, directory / "classes")
    with (
        (directory / "admin.log").open("w") as log,
        subprocess.Popen(
            java(library, "AdminCalls", classes=classes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield JavaAdmin(process)
        finally:
            process.kill()
