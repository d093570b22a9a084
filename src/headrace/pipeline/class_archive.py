"""Spark's classes as the JVM has them in memory, kept from one start to the next: it maps them, and starts in half the time.

A session maps the archive for its Java and its class path, where there is one. Where there is none it starts as ever, and
when its process has ended, another that nobody waits for runs a small Spark and keeps its classes. An archive appears
whole or not at all, and a JVM that it does not fit goes on without it: no start fails because of one.
"""

import atexit
import fcntl
import hashlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from headrace.clock import SystemClock
from headrace.errors import Unavailable
from headrace.pipeline.java import find_java
from headrace.user_cache import cache_directory

JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Put before those of `spark.driver.extraJavaOptions`, which are left to users."""
CLASS_PATH: Final = "spark.driver.extraClassPath"

_MAPPED: Final = '"-XX:SharedArchiveFile={path}" -Xshare:auto -XX:+VerifySharedSpaces -Xlog:cds*=off'
"""Checksums are compared, for 50 ms, and what does not fit is passed over without a word."""
_SCRATCH_PREFIX: Final = "making-"
_MAKING_SECONDS_MAX: Final = 300
_UNUSED_DAYS_MAX: Final = 30
"""Archives for a Java or a Spark that is no longer there take 190 MiB each."""
_RETRY_DAYS: Final = 1
_CLASS_PATH_VARIABLES: Final = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The classes of one Java and one class path, in a file with its size in its name: a JVM dies of one that was cut short.

    An empty one says that they could not be kept.
    """

    directory: Path
    key: str
    class_path: str
    """What the user put before Spark's own jars."""

    @property
    def path(self) -> Path | None:
        """Of a file to map."""
        for path in self.directory.glob(f"{self.key}-*.jsa"):
            # What another process is just deleting is not there.
            with suppress(OSError):
                size = path.stat().st_size
                if size and path == self._named(size):
                    return path
        return None

    @property
    def is_due(self) -> bool:
        """Whether there is none, and nobody failed to make it today."""
        return self.path is None and _age_days(self._named(0)) > _RETRY_DAYS

    def make(self) -> Path:
        """Takes half a minute, or as long as another process that is at it. Raises `Unavailable` where it cannot be done."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with _locked(self.directory):
            if (path := self.path) is not None:
                return path
            self._sweep()
            try:
                return self._make()
            except Unavailable:
                self._named(0).touch()
                raise

    def make_after_exit(self) -> None:
        """Once this process has ended: whoever waits for it does not wait for that, and has both cores until then."""
        atexit.unregister(_start_maker)
        atexit.register(_start_maker, self.class_path)

    def _named(self, size: int) -> Path:
        return self.directory / f"{self.key}-{size}.jsa"

    def _sweep(self) -> None:
        """Delete what a killed process left behind, what is no good, and what nobody used for long."""
        for scratch in self.directory.glob(f"{_SCRATCH_PREFIX}*"):
            shutil.rmtree(scratch, ignore_errors=True)
        for path in self.directory.glob("*.jsa"):
            if path.name.startswith(self.key) or _age_days(path) > _UNUSED_DAYS_MAX:
                path.unlink(missing_ok=True)

    def _make(self) -> Path:
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=_SCRATCH_PREFIX) as scratch:
            made = Path(scratch, "classes.jsa")
            command = [sys.executable, "-m", "headrace.pipeline.class_training", str(made), self.class_path]
            try:
                done = subprocess.run(
                    command,
                    # Spark leaves directories wherever it runs.
                    cwd=scratch,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=_MAKING_SECONDS_MAX,
                )
            except subprocess.TimeoutExpired as error:
                raise Unavailable(f"Spark did not end in {_MAKING_SECONDS_MAX} s") from error
            if done.returncode < 0:
                raise Unavailable(f"Spark was killed by signal {-done.returncode}")
            if done.returncode > 0 or not made.exists():
                complaint = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
                raise Unavailable(
                    f"this Java does not keep the classes of this Spark: {complaint or 'no reason given'}"
                )
            with made.open("rb") as file:
                os.fsync(file.fileno())
            return made.rename(self._named(made.stat().st_size))


def archive_for(conf: Mapping[str, str]) -> ClassArchive | None:
    """The archive for sessions with Spark's settings `conf`. None without Java, or a home to keep it in."""
    java = find_java()
    if java is None:
        return None
    try:
        directory = cache_directory() / "spark-classes"
    except RuntimeError:  # A user without a home directory.
        return None
    class_path = conf.get(CLASS_PATH, "")
    environment = [os.environ.get(name, "") for name in _CLASS_PATH_VARIABLES]
    key = "\n".join([*_java_version(java), *_spark_jars(), *map(_stamp, class_path.split(os.pathsep)), *environment])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return ClassArchive(directory, f"spark-{pyspark.__version__}-{digest}", class_path)


def archive_options(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a driver that maps its archive. Where there is none yet, it is made after this process."""
    archive = archive_for(conf)
    if archive is None:
        return {}
    if (path := archive.path) is None:
        if archive.is_due:
            archive.make_after_exit()
        return {}
    # For whoever looks for archives that are no longer used. The cache may be another's, to read only.
    with suppress(OSError):
        os.utime(path)
    return {JAVA_OPTIONS: mapping(path)}


def mapping(path: Path) -> str:
    """Options for a JVM."""
    return _MAPPED.format(path=path)


def _java_version(java: Path) -> list[str]:
    binary = java.resolve()
    release = binary.parent.parent / "release"
    return [_stamp(str(binary)), release.read_text() if release.exists() else ""]


def _spark_jars() -> list[str]:
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return sorted(_stamp(str(path)) for path in (home / "jars").glob("*.jar"))


def _stamp(path: str) -> str:
    """What changes when the file does. Class paths also have directories and wildcards, and what is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return path
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _age_days(path: Path) -> float:
    """Since it was made or used. What is not there is older than anything."""
    try:
        used_s = path.stat().st_mtime
    except OSError:
        return math.inf
    return (SystemClock().now_ms() / 1000 - used_s) / 86_400


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Alone in `directory`. A process that dies lets go of it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _start_maker(class_path: str) -> None:
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "headrace.pipeline.class_archive", class_path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C and the end of the terminal are not meant for it.
            start_new_session=True,
        )


def main() -> None:
    archive = archive_for({CLASS_PATH: sys.argv[1]})
    if archive is not None and archive.is_due:
        archive.make()


if __name__ == "__main__":
    main()
