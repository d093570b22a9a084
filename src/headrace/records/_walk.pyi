from headrace.records.batch import Buffer

KEYLESS_MAX: int

def walk(
    payload: Buffer, count: int, first_delta: int, timestamp_delta: int, is_sparse: bool, delta_end: int, /
) -> tuple[int, int, int, int, int, tuple[int, ...]]: ...
def ends(payload: Buffer, count: int, /) -> bytes: ...
