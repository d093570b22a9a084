"""Jars of Spark's own Kafka connector, from Maven Central into the user's cache; `CannotFetch` says why not.

Central does not have the connector of every Spark release, so the nearest older one stands in, jar by jar: Maven itself
would insist on a parent that names unreachable repositories.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pyspark

_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SPARK_VERSIONS: Final = (pyspark.__version__, "4.2.0", "4.1.0", "4.0.0")
_ARTIFACTS: Final = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": _SPARK_VERSIONS,
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": _SPARK_VERSIONS,
    "org.apache.kafka:kafka-clients": ("3.9.2",),
    "org.apache.commons:commons-pool2": ("2.12.1",),
}


class CannotFetch(Exception):
    """There is no Maven here, or it could not get the jars."""


def kafka_connector_jars() -> list[Path]:
    """Only what Spark does not bring itself."""
    directory = cache_directory() / f"spark-kafka-{pyspark.__version__}"
    if not directory.is_dir():
        _download(directory)
    return sorted(directory.glob("*.jar"))


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace"


def _download(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("Spark's Kafka connector is not in the cache and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        jars = Path(scratch) / "jars"
        for artifact, versions in _ARTIFACTS.items():
            if not any(copy_artifact(maven, f"{artifact}:{version}", jars) for version in versions):
                raise CannotFetch(f"mvn could not fetch {artifact} in any of {', '.join(versions)}")
        jars.rename(directory)


def copy_artifact(maven: str, artifact: str, directory: Path) -> bool:
    directory.mkdir(parents=True, exist_ok=True)
    command = [maven, "-B", "-q", _GOAL, f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    return subprocess.run(command, cwd=directory.parent, capture_output=True, timeout=300, check=False).returncode == 0
