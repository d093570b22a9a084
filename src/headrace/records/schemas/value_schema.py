"""What a topic's config says of the values of its records, and values read by it.

Values may have Confluent's framing in front: a zero byte, four bytes that are the number of a schema in a registry, and for Protobuf
the place of the message among those of its file. There is no registry here, so the framing is passed over.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from headrace.errors import Invalid
from headrace.records.schemas.avro import AvroSchema
from headrace.records.schemas.protobuf import ProtobufSchema

SCHEMA_KIND: Final = "value.schema.type"
SCHEMA_TEXT: Final = "value.schema"
SCHEMA_MESSAGE: Final = "value.schema.message"
KINDS: Final = ("avro", "protobuf")

TEXT_LENGTH_MAX: Final = 64 * 1024
"""It is kept with the topic's configs, and read where one is changed: on the event loop."""


T = TypeVar("T")


class Bounds(msgspec.Struct, frozen=True):
    """How much is decoded of one value. Beyond it, it is shown as bytes."""

    bytes_max: int
    values_max: int
    """A block of a few bytes may claim a quintillion nulls."""


WHOLE: Final = Bounds(bytes_max=1 << 20, values_max=100_000)
"""Of a record that is looked at by itself."""
BRIEF: Final = Bounds(bytes_max=8 * 1024, values_max=2_000)
"""Of one in a list of hundreds."""


class Decoded(msgspec.Struct, frozen=True):
    """JSON, or the reason why there is none."""

    json: bytes | None = None
    reason: str = ""


class Schema(Protocol):
    def decode(self, value: bytes, values_max: int) -> object:
        """As JSON has it; `Invalid` for bytes that the schema does not describe."""
        ...


class ValueSchema:
    def __init__(self, kind: str, schema: Schema) -> None:
        self.kind = kind
        self._schema = schema

    def decode(self, value: bytes, bounds: Bounds = WHOLE) -> Decoded:
        """Raises nothing for bytes, whatever they are."""
        if len(value) > bounds.bytes_max:
            return Decoded(reason=f"it has {len(value)} bytes, and up to {bounds.bytes_max} are decoded here")
        try:
            return Decoded(json=msgspec.json.encode(self._schema.decode(value, bounds.values_max)))
        except Invalid as error:
            return Decoded(reason=str(error))


def schema_of(configs: Mapping[str, str]) -> ValueSchema | None:
    """None where none is configured. `Invalid`, naming the key, for one that is broken."""
    kind, text, message = (configs.get(key, "") for key in (SCHEMA_KIND, SCHEMA_TEXT, SCHEMA_MESSAGE))
    if not kind:
        for key, given in ((SCHEMA_TEXT, text), (SCHEMA_MESSAGE, message)):
            if given:
                raise Invalid(f"{key}: {SCHEMA_KIND} must say what it is: {' or '.join(KINDS)}")
        return None
    if not text:
        raise Invalid(f"{SCHEMA_TEXT}: there is none, and {SCHEMA_KIND} is {kind}")
    if kind == "avro":
        if message:
            raise Invalid(f"{SCHEMA_MESSAGE}: Avro has none; it belongs to protobuf")
        return ValueSchema(kind, _named(SCHEMA_TEXT, lambda: AvroSchema(text)))
    if not message:
        raise Invalid(f"{SCHEMA_MESSAGE}: which message of the schema? As shop.Order")
    files = _named(SCHEMA_TEXT, lambda: ProtobufSchema.files_of(text))
    return ValueSchema(kind, _named(SCHEMA_MESSAGE, lambda: ProtobufSchema(files, message)))


def _named(key: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except Invalid as error:
        raise Invalid(f"{key}: {error}") from error
