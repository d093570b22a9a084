"""A stream from topic to topic in a process that may be killed: `python -m tests.support.sink_worker BROKERS CHECKPOINT`.

A query that fails is started again, as a supervisor would do. With `now` as third argument it ends once it has caught up.
"""

import sys
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.support.spark import ONE_CORE

from headrace.pipeline.session import open_session


def main() -> int:
    brokers, checkpoint, *rest = sys.argv[1:]
    spark = open_session(ONE_CORE, application="headrace sink test")
    while True:
        try:
            start(spark, brokers, checkpoint, is_now="now" in rest).awaitTermination()
            return 0
        except StreamingQueryException as error:
            print(error, flush=True)
            time.sleep(1)


def start(spark: SparkSession, brokers: str, checkpoint: str, *, is_now: bool) -> StreamingQuery:
    writer = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", brokers)
        .options(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="20000")
        .load()
        .select("key", "value")
        .writeStream.format("headrace")
        .options(**{"kafka.bootstrap.servers": brokers, "topic": "copies", "applicationId": "copy"})
        .option("checkpointLocation", checkpoint)
    )
    return (writer.trigger(availableNow=True) if is_now else writer.trigger(processingTime="0 seconds")).start()


if __name__ == "__main__":
    sys.exit(main())
