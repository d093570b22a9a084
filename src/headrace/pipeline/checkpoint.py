"""What Spark wrote into a query's checkpoint: the query's id, and the offsets every micro-batch stands for.

Spark hands `foreachBatch` rows and a number. Which offsets those rows cover, holes left by transaction markers included,
only its offset log says, and it is written before the batch runs.

Spark leaves these files to the page cache. On a local disk we flush those of a batch before it lands (`flush`), so that what
a table holds is never of a batch that the checkpoint has lost. What a power cut tore was not flushed, so its batch never
landed: `mend` removes it, and Spark makes it anew.
"""

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from headrace.blob.local import flush_directory, make_directory
from headrace.errors import Corrupted, UnsupportedOperation
from headrace.pipeline.source.offsets import Position

START_FILE: Final = "headrace-start.json"
_VERSION: Final = "v1"
_HEADER_LINES: Final = 2
_NO_OFFSET: Final = b"-"
_CHECKSUM_BYTES_MIN: Final = 12
"""A header of eight bytes, and one CRC."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    start: Position | None
    """None where the query began at the beginning of the log."""
    end: Position


class Checkpoint:
    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location.rstrip("/")

    def query_id(self) -> str:
        return str(msgspec.json.decode(self._read("metadata"))["id"])

    def flush(self, batch: int) -> None:
        """Put what Spark wrote up to the start of `batch` on the disk. Elsewhere than on a disk of ours it is there already."""
        root = local_path(self._location)
        if root is None:
            return
        for name in ("metadata", START_FILE, f"offsets/{batch}", f"commits/{batch - 1}"):
            path = root / name
            for one in (path, _checksum_of(path)):
                if one.exists():
                    with one.open("rb") as file:
                        os.fsync(file.fileno())
        for directory in (root / "offsets", root / "commits", root, root.parent):
            if directory.is_dir():
                flush_directory(directory)

    def bounds(self, batch: int) -> Bounds:
        end = self._position(batch)
        start = self._position(batch - 1) if batch > 0 else self.first_position()
        return Bounds(start=start, end=end)

    def _position(self, batch: int) -> Position:
        lines = self._read(f"offsets/{batch}").splitlines()
        if len(lines) != _HEADER_LINES + 1 or lines[0] != _VERSION:
            raise Corrupted(f"{self._location}/offsets/{batch}: not the offset log of a query with one source")
        return Position.from_json(msgspec.json.decode(lines[_HEADER_LINES]))

    def first_position(self) -> Position | None:
        """Where the query was told to begin, or None where it begins at the beginning of the log."""
        try:
            return Position.from_json(msgspec.json.decode(self._read(START_FILE)))
        except FileNotFoundError:
            return None

    def keep_first_position(self, position: Position) -> None:
        """Write it down before the first batch. Raises `UnsupportedOperation` where there is no way to write there."""
        data = msgspec.json.encode(position.to_json())
        root = local_path(self._location)
        if root is not None:
            _write_flushed(root / START_FILE, data)
            return
        if is_remote():
            raise UnsupportedOperation(
                f"startingOffsets: latest has to be written to {self._location}, which a Spark Connect client cannot do; "
                "use startingOffsets: earliest, or run the pipeline where Spark runs"
            )
        context = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(f"{self._location}/{START_FILE}")
        stream = path.getFileSystem(context._jsc.hadoopConfiguration()).create(path, False)
        stream.write(data)
        stream.close()

    def _read(self, name: str) -> str:
        path = local_path(self._location)
        if path is not None:
            return (path / name).read_text()
        try:
            rows = self._spark.read.text(f"{self._location}/{name}", wholetext=True).collect()
        except AnalysisException as error:
            if error.getCondition() == "PATH_NOT_FOUND":
                raise FileNotFoundError(f"{self._location}/{name}") from error
            raise
        return str(rows[0][0])


def _write_flushed(path: Path, data: bytes) -> None:
    make_directory(path.parent)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    flush_directory(path.parent)


def mend(location: str) -> list[str]:
    """Remove the newest files of a local checkpoint where a power cut left them torn. Gives back their names."""
    root = local_path(location)
    if root is None:
        return []
    newest = [
        max(found, key=lambda path: int(path.name))
        for name in ("offsets", "commits")
        if (found := [path for path in (root / name).glob("*") if path.name.isdigit()])
    ]
    removed = []
    for path in (root / "metadata", *newest):
        checksum = _checksum_of(path)
        if path.exists() and _is_torn(path.read_bytes()):
            path.unlink()
            checksum.unlink(missing_ok=True)
            removed.append(str(path.relative_to(root)))
        elif checksum.exists() and checksum.stat().st_size < _CHECKSUM_BYTES_MIN:
            checksum.unlink()
    return removed


def _is_torn(data: bytes) -> bool:
    """Whether a file of a checkpoint ends before it should. A format that is not known here is not judged."""
    if not data.strip(b"\0"):
        return True
    lines = data.splitlines()
    if lines[0] != _VERSION.encode():
        return False
    try:
        for line in lines[1:]:
            if line != _NO_OFFSET:
                msgspec.json.decode(line)
    except msgspec.DecodeError:
        return True
    return len(lines) == 1


def _checksum_of(path: Path) -> Path:
    """Where Hadoop keeps the checksum of a local file."""
    return path.with_name(f".{path.name}.crc")


def require_file_system(spark: SparkSession, location: str) -> None:
    """Raises `UnsupportedOperation` with what is missing when Spark has no way to the location."""
    scheme = urlparse(location).scheme
    if local_path(location) is not None or is_remote():
        return
    hadoop = spark.sparkContext._jvm.org.apache.hadoop
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, spark.sparkContext._jsc.hadoopConfiguration())
    except Py4JError as error:
        package = f"org.apache.hadoop:hadoop-aws:{hadoop.util.VersionInfo.getVersion()}"
        remedy = {
            "s3": f"write s3a:// instead of s3://, and give Spark the jar {package}",
            "s3a": f'give it the jar, by spark: {{conf: {{spark.jars.packages: "{package}"}}}}',
        }.get(scheme, "give it the jar of that file system, by spark.jars.packages below spark.conf")
        raise UnsupportedOperation(f"Spark cannot keep checkpoints at {location}: {remedy}") from error


def local_path(location: str) -> Path | None:
    """The path of a location on disk, or None for one that only Hadoop's file systems can read."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(parsed.path)
    return Path(location) if not parsed.scheme else None
