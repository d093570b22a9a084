"""Iceberg tables as DataFrames. There is no Iceberg jar for this Spark, so files are planned here and read by Spark.

Files on a local or shared disk go to Spark's own Parquet reader. Files elsewhere are read by pyarrow on the executors, so
that S3 needs no Hadoop jar. Our tables have no delete files; tables that do are refused rather than read wrongly.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTableHandle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import UnsupportedOperation
from headrace.pipeline.tables.access import file_access

ROWS_PER_BATCH: Final = 16_384


def spark_schema(handle: IcebergTableHandle) -> StructType:
    return from_arrow_schema(arrow_schema(handle.schema()))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema in types that Spark takes: pyiceberg says large_string and large_binary."""
    large = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(field.name, _small(field.type)) for field in large])


def read_files(spark: SparkSession, handle: IcebergTableHandle, only: Sequence[str] | None = None) -> DataFrame:
    """The table's rows, or those of the files named in `only`."""
    schema = spark_schema(handle)
    tasks = list(handle.scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise UnsupportedOperation(
            f"{'.'.join(handle.name())} has delete files, which only Iceberg's own readers apply"
        )
    paths = [task.file.file_path for task in tasks if only is None or task.file.file_path in only]
    if not paths:
        return spark.createDataFrame([], schema)
    if all(urlparse(path).scheme in ("", "file") for path in paths):
        return spark.read.schema(schema).parquet(*(unquote(urlparse(path).path) for path in paths))
    access = file_access(handle.io.properties)
    wanted = arrow_schema(handle.schema())

    def read_paths(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                with load_file_io(access.properties, path).new_input(path).open() as stream:
                    for rows in pq.ParquetFile(stream).iter_batches(batch_size=ROWS_PER_BATCH):
                        yield conform(rows, wanted)

    listed = spark.createDataFrame([(path,) for path in paths], "path string").repartition(len(paths))
    return listed.mapInArrow(read_paths, schema)


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """By name: files older than a column lack it."""
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _small(child.type)) for child in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _small(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    return kind
