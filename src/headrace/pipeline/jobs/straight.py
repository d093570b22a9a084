"""From the log to a table's data files inside one task: read, refine, write, and nothing of it passes through the JVM.

For reads that are not part of a streaming query, such as a backfill. What the refining step leaves over comes back as a
frame, so that Spark can do what it is better at; where all goes well that frame is empty.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.decoder import Columns
from headrace.pipeline.schemas import RECORD_DDL
from headrace.pipeline.session import cores_of
from headrace.pipeline.source.batch import plan_batch, settings_of
from headrace.pipeline.source.options import SourceOptions
from headrace.pipeline.source.planning import TASK_BYTES_MAX, TASKS_PER_CORE, Task, pack
from headrace.pipeline.source.reading import ReadSettings, TaskReader
from headrace.pipeline.steps.strict import Split
from headrace.pipeline.tables.coverage import Coverage
from headrace.pipeline.tables.port import WriteTarget, Written
from headrace.pipeline.tables.writer import DATA_FILE_COLUMN, OUTPUT_SCHEMA, TaskWriter, WrittenFile

RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

Refine = Callable[[pa.RecordBatch], Split]
"""Records to the rows of a table and the records that are left over. Pickled to executors."""


class StraightWritten(NamedTuple):
    written: Written
    rest: DataFrame | None
    """Records left over, held until `release`; None when there are none."""
    held: DataFrame

    def release(self) -> None:
        self.held.unpersist()


class StraightSource:
    """A part of the log that tasks can read by themselves.

    `options_for` gives the source's options for some offsets, in as many parts as have ranges of one partition.
    """

    def __init__(self, spark: SparkSession, options_for: Callable[[Coverage], Sequence[SourceOptions]]) -> None:
        self._spark = spark
        self._options_for = options_for

    def write(self, offsets: Coverage, target: WriteTarget, refine: Refine) -> StraightWritten:
        """Read `offsets` and write what `refine` makes of them to files for `target`."""
        options = self._options_for(offsets)
        planned = [task for part in options for task in plan_batch(part)]
        tasks = _regroup(planned, cores=cores_of(self._spark))
        write_files = _files_from_log(tasks, settings_of(options[0]), target, refine)
        held = self._spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(
            write_files, f"{OUTPUT_SCHEMA}, {' '.join(RECORD_DDL.split())}"
        )
        held = held.persist()
        rows = held.where(F.col(DATA_FILE_COLUMN).isNotNull()).select(DATA_FILE_COLUMN).collect()
        files: list[WrittenFile] = [pickle.loads(bytes(row[DATA_FILE_COLUMN])) for row in rows]
        record_count = sum(data_file.record_count for data_file in files)
        rest = None
        # Offsets without records make the counts differ as well; then looking costs a moment and finds nothing.
        if record_count != offsets.count():
            rest = held.where(F.col(DATA_FILE_COLUMN).isNull()).drop(DATA_FILE_COLUMN)
        return StraightWritten(target.written(files, record_count), rest, held)


def _regroup(tasks: Sequence[Task], *, cores: int) -> list[Task]:
    """The same reads in the same order, in larger tasks."""
    reads = [read for task in tasks for read in task]
    return pack(reads, tasks_wanted=cores * TASKS_PER_CORE, bytes_max=TASK_BYTES_MAX)


def _files_from_log(
    tasks: Sequence[Task], settings: ReadSettings, target: WriteTarget, refine: Refine
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: numbers of tasks in, files and left-over records out."""

    def write_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = Columns(RECORD_COLUMNS)
        writer = TaskWriter.of(target.metadata_json, target.access)
        reader = TaskReader(settings, columns)
        try:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    for records in reader.read(tasks[number]):
                        refined = refine(records)
                        for rest in refined.rest:
                            yield _row_of_rest(rest, columns)
                        for data_file in writer.add(refined.accepted):
                            yield _row_of_file(data_file, columns)
            for data_file in writer.finish():
                yield _row_of_file(data_file, columns)
        finally:
            reader.close()

    return write_files


def _row_of_rest(records: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    schema = pa.schema([pa.field(DATA_FILE_COLUMN, pa.binary()), *columns.schema])
    return pa.RecordBatch.from_arrays([pa.nulls(records.num_rows, pa.binary()), *records.columns], schema=schema)


def _row_of_file(data_file: WrittenFile, columns: Columns) -> pa.RecordBatch:
    schema = pa.schema([pa.field(DATA_FILE_COLUMN, pa.binary()), *columns.schema])
    nulls = [pa.nulls(1, field.type) for field in columns.schema]
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(data_file)], pa.binary()), *nulls], schema=schema)
