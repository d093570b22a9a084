"""From the log to tables: Spark through PySpark.

Planning, decoding and naming are plain Python and know nothing of Spark; Spark classes are adapters around them.
The pipeline sees records, blobs, the tier's format and the Kafka wire, never the broker: its death must not touch it.
"""
