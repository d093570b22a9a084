from headrace.records.batch import Buffer

KEYLESS_MAX: int

def walk(
    payload: Buffer, count: int, first_delta: int, timestamp_delta: int, is_sparse: bool, /
) -> tuple[int, int, int, int, int, tuple[int, ...]]: ...
