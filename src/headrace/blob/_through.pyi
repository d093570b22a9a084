from collections.abc import Sequence

from headrace.records.batch import Buffer

def write_through(descriptor: int, pieces: Sequence[Buffer], staging: memoryview, block_size: int, /) -> int: ...
