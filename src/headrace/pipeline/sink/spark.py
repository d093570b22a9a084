"""The adapters that Spark calls: tasks pack their rows, the driver sends them in one transaction."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.errors import Fault
from headrace.pipeline.failpoints import reach
from headrace.pipeline.sink.options import SinkOptions
from headrace.pipeline.sink.rows import check_columns, pack, unpack
from headrace.pipeline.sink.transaction import BatchTransaction, send_once

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property in which Spark tells tasks whose they are: the id in the query's checkpoint."""


@dataclass
class PackedRows(WriterCommitMessage):  # type: ignore[misc]
    packed: bytes | None
    query: str = ""


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema.fieldNames(), has_topic=options.topic is not None)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PackedRows:
        return PackedRows(pack(iterator, bytes_max=self._options.batch_bytes_max))

    def commit(self, messages: list[PackedRows | None]) -> None:
        packed = [message.packed for message in messages if message is not None and message.packed is not None]
        if packed:
            records = unpack(packed, topic=self._options.topic)
            send_once(self._options, records, transactional_id=f"headrace-spark-{uuid4().hex}")

    def abort(self, messages: list[PackedRows | None]) -> None:
        """Nothing was sent: rows only leave in `commit`."""


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Spark makes one for every micro-batch and calls `commit` again for a batch it is not sure of."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema.fieldNames(), has_topic=options.topic is not None)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PackedRows:
        return PackedRows(pack(iterator, bytes_max=self._options.batch_bytes_max), _query_of_task())

    def commit(self, messages: list[PackedRows | None], batchId: int) -> None:
        packed = [message.packed for message in messages if message is not None and message.packed is not None]
        query = next((message.query for message in messages if message is not None), None)
        if query is None:
            # Without tasks there are no rows; the next batch that has some is marked.
            return
        transaction = BatchTransaction(self._options)
        try:
            reach("before sink commit")
            transaction.send(unpack(packed, topic=self._options.topic), batch=batchId, query=query)
            reach("after sink commit")
        finally:
            transaction.close()

    def abort(self, messages: list[PackedRows | None], batchId: int) -> None:
        """Nothing was sent: rows only leave in `commit`."""


def _query_of_task() -> str:
    """On an executor: the id of the query whose task this is."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    if not query:
        raise Fault(f"Spark does not tell its task which query it is ({QUERY_ID})")
    return str(query)
