"""Another Spark than ours, with the official Iceberg runtime, in a virtual environment of its own below the user's cache.

Half a gigabyte, fetched once from PyPI and Maven Central. `CannotFetch` says why not.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.spark_jars import CannotFetch, cache_directory, copy_artifact

PYSPARK: Final = "pyspark==4.1.4"
_ARTIFACTS: Final = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0", "org.xerial:sqlite-jdbc:3.50.3.0")


class ForeignSpark(NamedTuple):
    python: Path
    jars: list[Path]

    def run(self, script: str, *arguments: str) -> str:
        """What the script prints."""
        done = subprocess.run(
            [str(self.python), "-c", script, ",".join(map(str, self.jars)), *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            # Nothing of ours: neither our Spark nor our packages.
            env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout


def foreign_spark() -> ForeignSpark:
    directory = cache_directory() / "spark-4.1.4-iceberg-1.11.0"
    # The jars come last, so where they are everything is.
    if not (directory / "jars").is_dir():
        _fetch(directory)
    return ForeignSpark(directory / "venv" / "bin" / "python", sorted((directory / "jars").glob("*.jar")))


def _fetch(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("the Iceberg runtime is not in the cache and there is no `mvn` to fetch it")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix="download-") as scratch:
        jars = Path(scratch) / "jars"
        for artifact in _ARTIFACTS:
            if not copy_artifact(maven, artifact, jars):
                raise CannotFetch(f"mvn could not fetch {artifact}")
        # A virtual environment knows its own path, so it is made where it stays.
        _make_environment(directory / "venv")
        jars.rename(directory / "jars")


def _make_environment(directory: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", str(directory)], capture_output=True, check=False)
    command = [
        str(directory / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        PYSPARK,
    ]
    if made.returncode or subprocess.run(command, capture_output=True, timeout=900, check=False).returncode:
        shutil.rmtree(directory.parent, ignore_errors=True)
        raise CannotFetch(f"pip could not install {PYSPARK}")
