"""The format `headrace` as Spark looks it up: its name, its columns, and who reads and writes.

A query imports this module in four processes one after the other, and two of them only ask for the name and the columns.
So it imports nothing but Spark: what reads and what writes is imported by who reads and who writes.
"""

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipeline.source.errors import InvalidOption

HEADERS_FIELD: Final = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
RECORD_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""As Spark's Kafka source has it; `headers` joins when `includeHeaders` is true."""


class HeadraceSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("headrace")` and `spark.readStream.format("headrace")`: a log's records, or with the option `table`
    a table's rows."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        if self._reads_table:
            from headrace.pipeline.table_source.readers import table_schema

            return table_schema(self.options)
        has_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return StructType([*RECORD_SCHEMA.fields, HEADERS_FIELD] if has_headers else RECORD_SCHEMA.fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._reads_table:
            from headrace.pipeline.table_source.readers import make_batch_reader as make_table_reader

            return make_table_reader(self.options, schema)
        from headrace.pipeline.source.readers import make_batch_reader

        return make_batch_reader(self.options, _columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._reads_table:
            from headrace.pipeline.table_source.readers import make_stream_reader as make_table_stream_reader

            return make_table_stream_reader(self.options, schema)
        from headrace.pipeline.source.readers import make_stream_reader

        return make_stream_reader(self.options, _columns_of(schema))

    @property
    def _reads_table(self) -> bool:
        return bool(self.options.get("table"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from headrace.pipeline.sink.options import parse_sink_options
        from headrace.pipeline.sink.spark import BatchWriter

        if overwrite:
            raise InvalidOption("a log cannot be overwritten; use mode append")
        return BatchWriter(parse_sink_options(self.options, is_stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from headrace.pipeline.sink.options import parse_sink_options
        from headrace.pipeline.sink.spark import StreamWriter

        if overwrite:
            raise InvalidOption("a log cannot be overwritten; use output mode append")
        return StreamWriter(parse_sink_options(self.options, is_stream=True), schema)


def _columns_of(schema: StructType) -> tuple[str, ...]:
    """The names in a schema that the user may have narrowed with `.schema(...)`. Types may not change."""
    known: dict[str, DataType] = {field.name: field.dataType for field in (*RECORD_SCHEMA.fields, HEADERS_FIELD)}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            raise InvalidOption(
                f"column {field.name} {field.dataType.simpleString()} is not one of the source's: "
                + ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            )
    return tuple(field.name for field in schema.fields)
