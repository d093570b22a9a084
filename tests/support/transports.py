"""A transport that connects to nothing: it keeps what is written, and knows whether it is paused or closed."""

import asyncio
from collections.abc import Iterable


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        """What was written, as it was handed over."""
        self.is_paused = False
        self.is_closed = False

    @property
    def written(self) -> bytes:
        return b"".join(self.pieces)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.pieces += map(bytes, list_of_data)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True
