"""Apache Kafka's jars, from Maven Central into the user's cache directory.

A version's directory is complete or absent: jars are copied into a scratch directory that is renamed at the end, so
that an interrupted download is never mistaken for a Kafka.
"""

import os
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Final

from headrace.bench.errors import RivalUnavailable

KAFKA_NEWEST: Final = "4.3.1"
KAFKA_PREVIOUS: Final = "3.9.2"

_COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_COPY_ONE_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_DOWNLOAD_SECONDS_MAX: Final = 600
_CONNECTOR_STAND_INS: Final = ("4.2.0", "4.1.0", "4.0.0")
"""Central does not have the connector of every Spark release; the nearest older one stands in."""
_CONNECTOR_ARTIFACTS: Final[dict[str, tuple[str, ...]]] = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": (),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": (),
    "org.apache.kafka:kafka-clients": ("3.9.2",),
    "org.apache.commons:commons-pool2": ("2.12.1",),
}
"""With the versions to try; those of Spark where none are named."""

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>rivals</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
)


def java_command() -> str:
    """The `java` to run, from JAVA_HOME or the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise RivalUnavailable("no `java` on the path and no JAVA_HOME: Apache Kafka and its tools need Java 17")
    return found


def kafka_class_path(version: str) -> str:
    """A class path (with a wildcard) that runs Kafka `version`; the first call downloads it."""
    directory = _cache_directory() / f"kafka-{version}"
    if not directory.is_dir():
        _download(version, directory)
    return f"{directory}/*"


def kafka_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka source that Spark does not bring itself; the first call downloads them."""
    version = metadata.version("pyspark")
    directory = _cache_directory() / f"spark-kafka-{version}"
    if not directory.is_dir():
        _download_connector((version, *_CONNECTOR_STAND_INS), directory)
    return sorted(directory.glob("*.jar"))


def _download_connector(versions: tuple[str, ...], directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RivalUnavailable(f"Spark's Kafka connector is not in {directory} and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    wanted = {artifact: given or versions for artifact, given in _CONNECTOR_ARTIFACTS.items()}
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        jars = Path(scratch) / "jars"
        for artifact, candidates in wanted.items():
            if not any(_copy_jar(maven, f"{artifact}:{version}", jars) for version in candidates):
                raise RivalUnavailable(f"mvn could not fetch {artifact} in any of {', '.join(candidates)}")
        jars.rename(directory)


def _copy_jar(maven: str, artifact: str, directory: Path) -> bool:
    command = [maven, "-B", "-q", _COPY_ONE_GOAL, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    done = subprocess.run(command, cwd=directory.parent, capture_output=True, timeout=_DOWNLOAD_SECONDS_MAX)
    return done.returncode == 0


def _cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace"


def _download(version: str, directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RivalUnavailable(f"Apache Kafka {version} is not in {directory} and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_POM.format(dependencies="".join(_dependencies(version))))
        jars = Path(scratch) / "jars"
        command = [maven, "-B", "-q", "-f", str(pom), _COPY_GOAL, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise RivalUnavailable(f"mvn did not fetch Apache Kafka {version} in {_DOWNLOAD_SECONDS_MAX} s") from error
        if done.returncode != 0:
            complaint = (done.stdout + done.stderr).strip().splitlines()
            raise RivalUnavailable(f"mvn could not fetch Apache Kafka {version}: {complaint[0] if complaint else '?'}")
        try:
            jars.rename(directory)
        except OSError:
            # Another process finished the same download first; its copy is as good.
            if not directory.is_dir():
                raise


def _dependencies(version: str) -> list[str]:
    wanted = [("org.apache.kafka", "kafka_2.13", version), ("org.apache.kafka", "kafka-tools", version)]
    # The distribution adds a logging backend to the jars; without one, Kafka 3 does not even start.
    if version.startswith("3."):
        wanted.append(("org.slf4j", "slf4j-reload4j", "1.7.36"))
    else:
        wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    return [_DEPENDENCY.format(group=group, artifact=artifact, version=number) for group, artifact, number in wanted]
