from array import array
from typing import Any

def decode(
    buffers: list[Any],
    table: array[int],
    first: int,
    end: int,
    offset: Any,
    timestamp: Any,
    timestamp_type: Any,
    key: Any,
    value: Any,
    header_ends: Any,
    header_key: Any,
    header_value: Any,
    /,
) -> tuple[int, int, int, int, int, int, int, int, int]: ...
