"""Bounds that are not settings, each with its reason."""

from typing import Final

FRAME_BYTES_MAX: Final = 104_857_600
"""Kafka's socket.request.max.bytes: checked before a buffer grows."""

TOPIC_NAME_LENGTH_MAX: Final = 255
"""The engine's rule (C11); the Kafka door refuses creating names over 249."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""One CreateTopics must not be able to exhaust the node."""

PRODUCER_BATCHES_KEPT: Final = 5
"""Batches remembered per producer and partition: max.in.flight of an idempotent client."""

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Largest batch we inflate for a JSON door or the command line; a bomb stops here."""

LEADER_EPOCH_MAX: Final = 2**31 - 1
"""A leader epoch has four bytes in a record batch (C27)."""

WIRE_ARRAY_ITEMS_MAX: Final = 100_000
"""Elements in one array of a Kafka message: two bytes on the wire become forty in memory."""

PARTITIONS_PER_REQUEST_MAX: Final = 100_000
"""Rows of one Produce or Fetch: six bytes on the wire become three hundred in memory."""
