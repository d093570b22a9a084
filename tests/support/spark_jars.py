"""Jars of Spark's own Kafka connector, from Maven Central into the user's cache; `CannotFetch` says why not."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


class CannotFetch(Exception):
    """There is no Maven here, or it could not get the jars."""


def kafka_connector_jars() -> list[Path]:
    """Only what Spark does not bring itself."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"
    directory = root / f"spark-kafka-{pyspark.__version__}"
    if not directory.is_dir():
        _download(directory)
    return [path for path in directory.glob("*.jar") if path.name.startswith(_NEEDED)]


def _download(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("Spark's Kafka connector is not in the cache and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(_POM.format(version=pyspark.__version__))
        jars = Path(scratch) / "jars"
        command = [maven, "-B", "-q", "-f", str(pom), _GOAL, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise CannotFetch(f"mvn could not fetch Spark's Kafka connector: {done.stdout[-300:]}{done.stderr[-300:]}")
        jars.rename(directory)
