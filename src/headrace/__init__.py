"""headrace: a Kafka-compatible log that lives on object storage."""

__version__ = "0.1.0"
