"""Archives of classes and a real Java: what fits is mapped, what does not is passed over in silence."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from headrace.pipeline.class_archive import archive_for, mapping
from headrace.pipeline.java import find_java

HOME = Path(pyspark.__file__).parent
JARS = [str(path) for path in sorted((HOME / "jars").glob("spark-[cl]*.jar"))]
LAUNCHER = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
"""Spark's launcher is a program of a moment, and prints the command that it would run."""
MAPPED = "source: shared objects file (top)"
SESSION = """
from headrace.pipeline.session import open_session, session_conf
from headrace.pipeline.settings import SparkSettings

name = "spark.driver.extraJavaOptions"
options = session_conf(SparkSettings(class_archive=False))[name]
conf = {name: f"{options} -Xlog:class+load:file=FILE"}
spark = open_session(SparkSettings(master="local[1]", driver_memory="1g", conf=conf))
print(spark.sql("SELECT count(*) FROM range(10)").collect()[0][0])
spark.stop()
"""


def run_launcher(*options: str, jars: list[str] = JARS) -> "subprocess.CompletedProcess[str]":
    command = [str(find_java()), *options, "-cp", os.pathsep.join(jars), *LAUNCHER]
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archives") / "launcher.jsa"
    run_launcher(f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable")
    path.chmod(0o644)
    return path


def empty(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def overwrite(share: float) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(int(path.stat().st_size * share))
            file.write(os.urandom(4096))

    return spoil


def test_what_fits_is_mapped(made: Path) -> None:
    done = run_launcher(*shlex.split(mapping(made)), "-Xlog:class+load")
    assert f"org.apache.spark.launcher.Main {MAPPED}" in done.stdout


@pytest.mark.parametrize("spoil", [empty, remove, overwrite(0.0), overwrite(0.3), overwrite(0.6), overwrite(0.9)])
def test_a_spoiled_archive_is_passed_over_in_silence(made: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "spoiled.jsa"
    path.write_bytes(made.read_bytes())
    spoil(path)
    options = shlex.split(mapping(path))
    done, plain = run_launcher(*options), run_launcher()
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    assert MAPPED not in run_launcher(*options, "-Xlog:class+load").stdout


def test_an_archive_for_other_jars_is_passed_over_in_silence(made: Path) -> None:
    jars = JARS[::-1]
    options = shlex.split(mapping(made))
    done, plain = run_launcher(*options, jars=jars), run_launcher(jars=jars)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    assert MAPPED not in run_launcher(*options, "-Xlog:class+load", jars=jars).stdout


@pytest.mark.long
def test_the_second_session_maps_what_was_made_after_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    log = tmp_path / "classes.log"

    def start_session() -> str:
        program = SESSION.replace("FILE", str(log))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True)
        assert done.stdout == "10\n"
        return done.stderr

    said = start_session()
    assert MAPPED not in log.read_text()
    archive = archive_for({})
    assert archive is not None
    # The process that the session left behind is at it, or will find that this one was faster.
    path = archive.make()
    assert start_session() == said
    assert log.read_text().count(MAPPED) > 10_000

    path.chmod(0o644)
    overwrite(0.5)(path)
    assert start_session() == said
    assert MAPPED not in log.read_text()
    os.truncate(path, path.stat().st_size // 2)
    assert start_session() == said
    # Waits for the process that this session left behind.
    assert archive.make() == archive.path
    assert list(archive.directory.glob("*.jsa")) == [archive.path], "in the place of the one that was cut short"
