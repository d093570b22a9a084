"""Protobuf messages, read by descriptors: what `protoc --include_imports --descriptor_set_out` writes, in base64.

Google's library reads the bytes, which bounds how deep messages nest, and turns them into JSON by Protobuf's own rules: numbers of 64
bits are text, so that nobody rounds them.
"""

import binascii
from base64 import b64decode
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import DecodeError, Message

from headrace.errors import Invalid

VALUE_BYTES_MAX: Final = 64 * 1024
"""A byte may become a message, and a message in Python a kilobyte. A larger value is shown as bytes."""
_ID_SIZE: Final = 4
_PATH_MAX: Final = 64


class ProtobufSchema:
    def __init__(self, files: FileDescriptorSet, message: str) -> None:
        """`Invalid` where the files do not fit together, or have no such message."""
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in files.file:
                self._pool.AddSerializedFile(file.SerializeToString())
            self._kind: type[Message] = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(message))
        except KeyError as error:
            raise Invalid(f"the schema has no message {message[:100]!r}") from error
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise Invalid(f"the files do not fit together (protoc --include_imports has all): {reason}") from error

    @staticmethod
    def files_of(text: str) -> FileDescriptorSet:
        try:
            files = FileDescriptorSet.FromString(b64decode(text, validate=True))
        except (binascii.Error, ValueError, DecodeError) as error:
            raise Invalid("not the base64 of a FileDescriptorSet, as protoc --descriptor_set_out writes it") from error
        if not files.file:
            raise Invalid("a FileDescriptorSet without files")
        return files

    def decode(self, value: bytes, values_max: int) -> object:
        """`values_max` is Avro's: here every value has a byte of its own at least."""
        if len(value) > VALUE_BYTES_MAX:
            raise Invalid(f"it has {len(value)} bytes, and of Protobuf up to {VALUE_BYTES_MAX} are decoded")
        try:
            message = self._kind.FromString(value[_start_of(value) :])
            found: Any = json_format.MessageToDict(  # Any: JSON
                message, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except (DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise Invalid(" ".join(str(error).split())[:300] or type(error).__name__) from error
        return found


def _start_of(value: bytes) -> int:
    """Behind the framing. No message begins with a zero: there is no field of that number."""
    if value[:1] != b"\0":
        return 0
    place = 1 + _ID_SIZE
    count, place = _varint(value, place)
    # Zero alone stands for the path to the first message.
    if count > _PATH_MAX:
        raise Invalid(f"a framing whose path has {count} steps")
    for _ in range(count):
        _, place = _varint(value, place)
    return place


def _varint(value: bytes, place: int) -> tuple[int, int]:
    """A number that is never negative, in zigzag, and where it ends."""
    number = 0
    for index, byte in enumerate(value[place : place + 5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number >> 1, place + index + 1
    raise Invalid("the framing is cut short")
