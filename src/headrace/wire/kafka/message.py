"""What all generated messages share.

`read` and `write` are generated; `decode` and `encode` are the doors into them. A message is read from a frame
in place: strings and bytes are copied out, `records` stay slices of the frame and live only as long as it does.
Fields that a version does not have are left at their defaults when read, and left out when written.
"""

from typing import ClassVar, Self

import msgspec

from headrace.errors import MalformedRequest
from headrace.wire.kafka.primitives import READ_ERRORS, Buffer


class Message(msgspec.Struct, gc=False):
    """A whole request, response or stored record, in all versions."""

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int | None]

    @classmethod
    def read(cls, data: memoryview, at: int, version: int) -> tuple[Self, int]:
        raise NotImplementedError

    def write(self, out: bytearray, version: int) -> None:
        raise NotImplementedError

    @classmethod
    def decode(cls, data: Buffer, version: int, at: int = 0) -> Self:
        """Read the message that starts at `at`. What follows it is ignored, as Kafka does."""
        first, last = cls.VERSIONS
        if not first <= version <= last:
            raise MalformedRequest(f"{cls.__name__} v{version}: only v{first} to v{last} are known")
        try:
            return cls.read(memoryview(data), at, version)[0]
        except READ_ERRORS as error:
            raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from error

    def encode(self, out: bytearray, version: int) -> None:
        """Append the message to `out`."""
        first, last = self.VERSIONS
        assert first <= version <= last, f"{type(self).__name__} v{version}"
        self.write(out, version)
