"""Another Spark than ours, with the official Iceberg runtime, in a virtual environment of its own below the user's cache.

Half a gigabyte, fetched once from PyPI and Maven Central. `RivalUnavailable` says why not.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from headrace.bench.errors import RivalUnavailable
from headrace.bench.maven import fetched_jars
from headrace.user_cache import cache_directory

PYSPARK: Final = "pyspark==4.1.4"
_ARTIFACTS: Final = {
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13": ("1.11.0",),
    "org.xerial:sqlite-jdbc": ("3.50.3.0",),
}


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
    python = directory / "venv" / "bin" / "python"
    # The jars come last, so where they are everything is.
    if not (directory / "jars").is_dir():
        _make_environment(directory / "venv")
    return ForeignSpark(python, fetched_jars(directory / "jars", _ARTIFACTS))


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
        raise RivalUnavailable(f"pip could not install {PYSPARK}")
