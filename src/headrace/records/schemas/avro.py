"""Avro's binary encoding, read by the schema that wrote it (Apache Avro specification 1.11, "Schema Declaration", "Binary Encoding").

What comes out is what JSON has: records and maps are objects, a union is the value of its branch, bytes are text of one character per
byte as in Avro's own JSON, a decimal is text with all its digits, and so are numbers that JSON has no words for. Longs stay exact.

Bytes cannot make it work without end: every value read counts, blocks of nothing included, and values nest only so deep.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal
from typing import Any, Final

import msgspec

from headrace.errors import Invalid

DEPTH_MAX: Final = 64
"""Of values in each other, and of types: schemas may contain themselves."""
_DIGITS_MAX: Final = 1000
_FRAME_SIZE: Final = 5

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class _Reader:
    """A place in the bytes of one value."""

    def __init__(self, data: bytes, position: int, values_max: int) -> None:
        self._data = data
        self._position = position
        self._values_max = values_max
        self._values = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def count(self, depth: int) -> None:
        """Before each value."""
        self._values += 1
        if self._values > self._values_max:
            raise Invalid(f"it holds more than {self._values_max} values")
        if depth > DEPTH_MAX:
            raise Invalid(f"values nest more than {DEPTH_MAX} deep")

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise Invalid(f"{size} bytes are announced at byte {self._position}, of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def long(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Invalid("a number of more than ten bytes")
        if number >= 1 << 64:
            raise Invalid("a number of more than 64 bits")
        return (number >> 1) ^ -(number & 1)


_Read = Callable[[_Reader, int], object]
"""Reads one value, which stands so deep in others."""


class AvroSchema:
    def __init__(self, text: str) -> None:
        """`Invalid` for text that is no schema."""
        try:
            document = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Invalid(f"not JSON: {error}") from error
        self._read = _Types().reader(document, "", 0)

    def decode(self, value: bytes, values_max: int) -> object:
        if value[:1] != b"\0" or len(value) < _FRAME_SIZE:
            return self._whole(value, 0, values_max)
        try:
            return self._whole(value, _FRAME_SIZE, values_max)
        except Invalid as framed:
            # A zero may as well be the first byte of a value that has no framing.
            try:
                return self._whole(value, 0, values_max)
            except Invalid:
                raise framed from None

    def _whole(self, value: bytes, start: int, values_max: int) -> object:
        reader = _Reader(value, start, values_max)
        found = self._read(reader, 0)
        if not reader.is_at_end:
            raise Invalid("bytes are left behind the value: it was written by another schema")
        return found


class _Types:
    """Turns declarations into readers, and knows the types that have names."""

    def __init__(self) -> None:
        self._named: dict[str, _Read] = {}

    def reader(self, declared: Any, namespace: str, depth: int) -> _Read:  # Any: JSON
        if depth > DEPTH_MAX:
            raise Invalid(f"types nest more than {DEPTH_MAX} deep")
        match declared:
            case str():
                return self._by_name(declared, namespace)
            case list():
                return self._union(declared, namespace, depth)
            case {"type": str(kind)}:
                return self._complex(kind, declared, namespace, depth)
            case {"type": inner}:
                return self.reader(inner, namespace, depth + 1)
            case _:
                raise Invalid(f"{_shown(declared)} is no type")

    def _complex(self, kind: str, declared: Mapping[str, Any], namespace: str, depth: int) -> _Read:  # Any: JSON
        match kind:
            case "record" | "error":
                return self._record(declared, namespace, depth)
            case "enum":
                return self._enum(declared, namespace)
            case "fixed":
                return self._fixed(declared, namespace)
            case "array":
                return _array(self.reader(_part(declared, "items"), namespace, depth + 1))
            case "map":
                return _map(self.reader(_part(declared, "values"), namespace, depth + 1))
            case "bytes" if declared.get("logicalType") == "decimal":
                return _decimal(_bytes, _scale(declared))
            case _:
                return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> _Read:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        known = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if known is None:
            raise Invalid(f"there is no type {name[:100]!r}")
        return known

    def _name(self, declared: Mapping[str, Any], namespace: str) -> tuple[str, str]:  # Any: JSON
        """The full name, and the namespace of what stands inside."""
        name = declared.get("name")
        inside = declared.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(inside, str):
            raise Invalid(f"{_shown(declared)} has no name")
        full = _full_name(name, inside)
        if full in self._named or full in _PRIMITIVES:
            raise Invalid(f"{full[:100]!r} is declared twice")
        return full, full.rpartition(".")[0]

    def _record(self, declared: Mapping[str, Any], namespace: str, depth: int) -> _Read:  # Any: JSON
        full, inside = self._name(declared, namespace)
        fields: dict[str, _Read] = {}

        def read(reader: _Reader, at: int) -> object:
            reader.count(at)
            return {name: field(reader, at + 1) for name, field in fields.items()}

        # Known before its fields are: they may be of this type.
        self._named[full] = read
        listed = _part(declared, "fields")
        if not isinstance(listed, list):
            raise Invalid(f"the fields of {full[:100]!r} are no list")
        for field in listed:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or name in fields:
                raise Invalid(f"{full[:100]!r} has a field without a name, or two of one name")
            fields[name] = self.reader(_part(field, "type"), inside, depth + 1)
        return read

    def _enum(self, declared: Mapping[str, Any], namespace: str) -> _Read:  # Any: JSON
        full, _ = self._name(declared, namespace)
        symbols = declared.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise Invalid(f"the symbols of {full[:100]!r} are no list of text")

        def read(reader: _Reader, at: int) -> object:
            reader.count(at)
            index = reader.long()
            if not 0 <= index < len(symbols):
                raise Invalid(f"{full[:100]!r} has no symbol {index}")
            return symbols[index]

        self._named[full] = read
        return read

    def _fixed(self, declared: Mapping[str, Any], namespace: str) -> _Read:  # Any: JSON
        full, _ = self._name(declared, namespace)
        size = declared.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Invalid(f"{full[:100]!r} has no size")

        def take(reader: _Reader) -> bytes:
            return reader.take(size)

        is_decimal = declared.get("logicalType") == "decimal"
        self._named[full] = _decimal(take, _scale(declared)) if is_decimal else _text_of(take)
        return self._named[full]

    def _union(self, declared: list[Any], namespace: str, depth: int) -> _Read:  # Any: JSON
        branches = [self.reader(each, namespace, depth + 1) for each in declared]

        def read(reader: _Reader, at: int) -> object:
            index = reader.long()
            if not 0 <= index < len(branches):
                raise Invalid(f"branch {index} of a union of {len(branches)}")
            return branches[index](reader, at)

        return read


def _array(item: _Read) -> _Read:
    def read(reader: _Reader, at: int) -> object:
        reader.count(at)
        items = []
        for count in _blocks(reader):
            # One by one: the count is what the bytes say, and is checked as it is read.
            for _ in range(count):
                items.append(item(reader, at + 1))
        return items

    return read


def _map(item: _Read) -> _Read:
    def read(reader: _Reader, at: int) -> object:
        reader.count(at)
        items: dict[str, object] = {}
        for count in _blocks(reader):
            for _ in range(count):
                key = _utf8(reader)
                items[key] = item(reader, at + 1)
        return items

    return read


def _blocks(reader: _Reader) -> Iterator[int]:
    """Counts of items, until the one that is zero. A negative one is followed by the size of its block in bytes."""
    while count := reader.long():
        if count < 0:
            reader.long()
        yield abs(count)


def _bytes(reader: _Reader) -> bytes:
    return reader.take(reader.long())


def _utf8(reader: _Reader) -> str:
    try:
        return _bytes(reader).decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"text that is not UTF-8: {error.reason}") from error


def _text_of(take: Callable[[_Reader], bytes]) -> _Read:
    return _counted(lambda reader: take(reader).decode("latin-1"))


def _decimal(take: Callable[[_Reader], bytes], scale: int) -> _Read:
    context = Context(prec=_DIGITS_MAX)

    def read(reader: _Reader) -> object:
        data = take(reader)
        if len(data) * 3 > _DIGITS_MAX:
            raise Invalid(f"a decimal of {len(data)} bytes")
        return format(Decimal(int.from_bytes(data, signed=True)).scaleb(-scale, context), "f")

    return _counted(read)


def _counted(read: Callable[[_Reader], object]) -> _Read:
    def counted(reader: _Reader, at: int) -> object:
        reader.count(at)
        return read(reader)

    return counted


def _boolean(reader: _Reader) -> object:
    (byte,) = reader.take(1)
    if byte > 1:
        raise Invalid(f"a boolean of {byte}")
    return byte == 1


def _int(reader: _Reader) -> object:
    number = reader.long()
    if not -(2**31) <= number < 2**31:
        raise Invalid(f"an int of {number}")
    return number


def _real(layout: struct.Struct) -> Callable[[_Reader], object]:
    def read(reader: _Reader) -> object:
        (number,) = layout.unpack(reader.take(layout.size))
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"

    return read


_PRIMITIVES: Final[Mapping[str, _Read]] = {
    "null": _counted(lambda _: None),
    "boolean": _counted(_boolean),
    "int": _counted(_int),
    "long": _counted(lambda reader: reader.long()),
    "float": _counted(_real(_FLOAT)),
    "double": _counted(_real(_DOUBLE)),
    "bytes": _text_of(_bytes),
    "string": _counted(_utf8),
}


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _part(declared: Mapping[str, Any], name: str) -> Any:  # Any: JSON
    if name not in declared:
        raise Invalid(f"{_shown(declared)} has no {name}")
    return declared[name]


def _scale(declared: Mapping[str, Any]) -> int:  # Any: JSON
    scale = declared.get("scale", 0)
    if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= _DIGITS_MAX:
        raise Invalid(f"a decimal whose scale is {_shown(scale)}")
    return scale


def _shown(declared: object) -> str:
    return msgspec.json.encode(declared).decode()[:100]
