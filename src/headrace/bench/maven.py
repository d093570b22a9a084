"""Jars of Apache Kafka and others, from Maven Central into the user's cache directory.

A directory is complete or absent: jars are copied into a scratch directory that is renamed at the end, so that an
interrupted download is never mistaken for a Kafka.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from headrace.bench.errors import RivalUnavailable
from headrace.pipeline.java import find_java
from headrace.user_cache import cache_directory

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

HADOOP: Final = "3.5.0"
_HADOOP_AWS_ARTIFACTS: Final[dict[str, tuple[str, ...]]] = {
    "org.apache.hadoop:hadoop-aws": (HADOOP,),
    "software.amazon.awssdk:bundle": ("2.35.4",),
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3": ("1.3.1",),
}

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
    found = find_java()
    if found is None:
        raise RivalUnavailable("no `java` on the path and no JAVA_HOME: Apache Kafka and its tools need Java 17")
    return str(found)


def kafka_class_path(version: str) -> str:
    """A class path (with a wildcard) that runs Kafka `version`; the first call downloads it."""
    directory = cache_directory() / f"kafka-{version}"
    if not directory.is_dir():
        with _download(directory) as download:
            download.copy_with_dependencies(f"Apache Kafka {version}", _kafka(version))
    return f"{directory}/*"


def kafka_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka source that Spark does not bring itself; the first call downloads them."""
    version = metadata.version("pyspark")
    ours = (version, *_CONNECTOR_STAND_INS)
    artifacts = {artifact: versions or ours for artifact, versions in _CONNECTOR_ARTIFACTS.items()}
    return fetched_jars(cache_directory() / f"spark-kafka-{version}", artifacts)


def hadoop_aws_jars() -> list[Path]:
    """What the Hadoop of this Spark needs for `s3a://` (700 MB); the first call downloads it."""
    return fetched_jars(cache_directory() / f"hadoop-aws-{HADOOP}", _HADOOP_AWS_ARTIFACTS)


def fetched_jars(directory: Path, artifacts: Mapping[str, Sequence[str]]) -> list[Path]:
    """One jar of each artifact, in the first of its versions that there is; without what the artifact depends on."""
    if not directory.is_dir():
        with _download(directory) as download:
            for artifact, versions in artifacts.items():
                if not any(download.copy(f"{artifact}:{version}") for version in versions):
                    raise RivalUnavailable(f"mvn could not fetch {artifact} in any of {', '.join(versions)}")
    return sorted(directory.glob("*.jar"))


@dataclass(frozen=True, slots=True)
class _Download:
    maven: str
    scratch: Path

    @property
    def jars(self) -> Path:
        return self.scratch / "jars"

    def copy(self, artifact: str) -> bool:
        return self.run(_COPY_ONE_GOAL, f"-Dartifact={artifact}").returncode == 0

    def copy_with_dependencies(self, what: str, dependencies: Sequence[str]) -> None:
        pom = self.scratch / "pom.xml"
        pom.write_text(_POM.format(dependencies="".join(dependencies)))
        done = self.run("-f", str(pom), _COPY_GOAL, "-DincludeScope=runtime")
        if done.returncode != 0:
            complaint = (done.stdout + done.stderr).strip().splitlines()
            raise RivalUnavailable(f"mvn could not fetch {what}: {complaint[0] if complaint else '?'}")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [self.maven, "-B", "-q", *arguments, f"-DoutputDirectory={self.jars}"]
        try:
            return subprocess.run(
                command, cwd=self.scratch, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS_MAX
            )
        except subprocess.TimeoutExpired as error:
            raise RivalUnavailable(f"mvn did not end in {_DOWNLOAD_SECONDS_MAX} s") from error


@contextmanager
def _download(directory: Path) -> Iterator[_Download]:
    """What is copied meanwhile becomes `directory` at the end."""
    maven = shutil.which("mvn")
    if maven is None:
        raise RivalUnavailable(f"{directory} is not there and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        download = _Download(maven, Path(scratch))
        yield download
        try:
            download.jars.rename(directory)
        except OSError:
            # Another process finished the same download first; its copy is as good.
            if not directory.is_dir():
                raise


def _kafka(version: str) -> list[str]:
    wanted = [("org.apache.kafka", "kafka_2.13", version), ("org.apache.kafka", "kafka-tools", version)]
    # The distribution adds a logging backend to the jars; without one, Kafka 3 does not even start.
    if version.startswith("3."):
        wanted.append(("org.slf4j", "slf4j-reload4j", "1.7.36"))
    else:
        wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    return [_DEPENDENCY.format(group=group, artifact=artifact, version=number) for group, artifact, number in wanted]
