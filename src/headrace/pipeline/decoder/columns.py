"""The columns of a record as Arrow sees them, equal to the last bit to what Spark expects of its Kafka source."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))

ARROW_FIELDS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""Every column a reader may ask for, in the order of Spark's Kafka source."""

TIMESTAMP_MS_LIMIT: Final = (2**63 - 1) // 1000
"""Times beyond this cannot be microseconds in 64 bits; they are held at the limit, never wrapped around."""


def as_text(names: pa.Array) -> pa.Array:
    """Header names as strings; what is not UTF-8 is replaced, as Kafka's own clients do."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def headers_of(ends: Any, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of (key, value) from `rows + 1` list ends; a record without headers has null, as in Spark's source."""
    pairs = pa.StructArray.from_arrays([as_text(keys), values], fields=list(HEADER_TYPE))
    present = np.packbits(ends[1:] != ends[:-1], bitorder="little")
    buffers = [pa.py_buffer(present), pa.py_buffer(ends)]
    return pa.Array.from_buffers(HEADERS_TYPE, len(ends) - 1, buffers, children=[pairs])
