"""Settings of Wasm transforms: how much a module may use. Which topic has which module is the topic's own config."""

from typing import Annotated

import msgspec
from msgspec import Meta


class WasmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wasm transforms."""

    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    """Threads that run modules. One batch of a partition runs at a time, batches of several run beside each other. More of them
    take more cores from everything else on the machine. Restart needed."""
    timeout_ms: Annotated[int, Meta(ge=10, le=60_000)] = 2000
    """Longest that a module may work on one batch; then the batch is refused. Restart needed."""
    fuel_max: Annotated[int, Meta(ge=1_000_000, le=2**62)] = 10_000_000_000
    """Most instructions, about, that a module may spend on one batch. It ends a module at the same place on every machine, where the
    time-out depends on the load. Restart needed."""
    memory_bytes_max: Annotated[int, Meta(ge=1 << 20, le=512 << 20)] = 64 << 20
    """Most memory that a module may have while it works on one batch. Restart needed."""
    module_bytes_max: Annotated[int, Meta(ge=1024, le=8 << 20)] = 4 << 20
    """Largest module that can be uploaded. Compiling takes a thread some seconds for each megabyte. Restart needed."""
