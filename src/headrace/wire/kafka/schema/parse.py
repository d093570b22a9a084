"""Reads the schema tables: facts about Kafka's messages, one line each.

A message opens with a line at the margin:

    FetchRequest  key=1  versions=4-17  flexible=12

`versions` is the range this codec speaks, `flexible` the first version with compact lengths and tagged
fields (absent: never). Messages without a key are written inside opaque bytes. Each indented line below is
a field:

    name   type   [versions]   [tag=N]   [nullable | nullable=N+]   [default=X]

- type: bool int8 int16 int32 int64 uint16 uint32 float64 string uuid bytes records, the name of a struct, or
  any of them after `[]`. The fields of a struct are the deeper lines that follow its first use.
- versions: `5+`, `4-12` or `7`; without it the field lives as long as its parent.
- tag: the field is tagged, written only when it differs from its default.
- nullable: null is legal, always or from a version on. A field that is always nullable defaults to null.

The tables know layout only. What a field means is the door's business.
"""

from collections.abc import Iterator

import msgspec

PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "string", "uuid", "bytes", "records")
)


class Versions(msgspec.Struct, frozen=True):
    """A range of versions; both ends belong to it."""

    first: int
    last: int

    def clip(self, outer: "Versions") -> "Versions":
        return Versions(max(self.first, outer.first), min(self.last, outer.last))


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a struct."""

    name: str
    type: str
    is_array: bool
    versions: Versions
    tag: int | None
    nullable_from: int | None
    default: str | None

    @property
    def is_struct(self) -> bool:
        return self.type not in PRIMITIVES


class StructSchema(msgspec.Struct, frozen=True):
    """A struct, with the versions in which it can occur."""

    name: str
    versions: Versions
    fields: list[Field]


class MessageSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One request, response or stored record. `structs` has children before parents, the message itself last."""

    name: str
    api_key: int | None
    versions: Versions
    flexible_from: int | None
    structs: list[StructSchema]

    @property
    def root(self) -> StructSchema:
        return self.structs[-1]


def parse_table(table: str) -> list[MessageSchema]:
    """Every message of one table."""
    messages: list[MessageSchema] = []
    lines: list[str] = []
    for line in reversed(table.splitlines()):
        if not line.strip():
            continue
        lines.insert(0, line)
        if not line.startswith(" "):
            messages.insert(0, _parse_message(lines))
            lines = []
    assert not lines, f"a field without a message: {lines[0]!r}"
    return messages


def _parse_message(lines: list[str]) -> MessageSchema:
    name, *words = lines[0].split()
    facts = dict(word.split("=") for word in words)
    versions = _parse_versions(facts["versions"])
    structs: list[StructSchema] = []
    _parse_struct(name, versions, [_Line(line) for line in lines[1:]], structs)
    return MessageSchema(
        name=name,
        api_key=int(facts["key"]) if "key" in facts else None,
        versions=versions,
        flexible_from=int(facts["flexible"]) if "flexible" in facts else None,
        structs=structs,
    )


class _Line:
    """A field line, cut into words."""

    def __init__(self, line: str) -> None:
        self.indent = len(line) - len(line.lstrip())
        self.name, self.type, *self.words = line.split()


def _parse_struct(name: str, versions: Versions, lines: list[_Line], structs: list[StructSchema]) -> None:
    fields: list[Field] = []
    for line, children in _with_children(lines):
        field = _parse_field(line, versions)
        fields.append(field)
        if children:
            _parse_struct(field.type, field.versions, children, structs)
        elif field.is_struct:
            _widen(field.type, field.versions, structs)
    structs.append(StructSchema(name, versions, fields))


def _widen(name: str, versions: Versions, structs: list[StructSchema]) -> None:
    """A struct that is used again lives in the versions of all its uses, and so do its fields."""
    index = next((index for index, known in enumerate(structs) if known.name == name), None)
    assert index is not None, f"{name} has no fields"
    known = structs[index]
    both = Versions(min(known.versions.first, versions.first), max(known.versions.last, versions.last))
    if both == known.versions:
        return
    fields = [
        msgspec.structs.replace(field, versions=both) if field.versions == known.versions else field
        for field in known.fields
    ]
    structs[index] = StructSchema(name, both, fields)
    for field in fields:
        if field.is_struct:
            _widen(field.type, field.versions, structs)


def _with_children(lines: list[_Line]) -> Iterator[tuple[_Line, list[_Line]]]:
    starts = [index for index, line in enumerate(lines) if line.indent == lines[0].indent]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[start], lines[start + 1 : end]


def _parse_field(line: _Line, outer: Versions) -> Field:
    versions = outer
    tag: int | None = None
    nullable_from: int | None = None
    default: str | None = None
    for word in line.words:
        key, _, value = word.partition("=")
        match key:
            case "tag":
                tag = int(value)
            case "nullable":
                nullable_from = int(value.rstrip("+")) if value else versions.first
            case "default":
                default = value
            case _:
                versions = _parse_versions(word).clip(outer)
    return Field(
        name=line.name,
        type=line.type.removeprefix("[]"),
        is_array=line.type.startswith("[]"),
        versions=versions,
        tag=tag,
        nullable_from=nullable_from,
        default=default,
    )


def _parse_versions(text: str) -> Versions:
    first, dash, last = text.partition("-")
    if text.endswith("+"):
        return Versions(int(text[:-1]), 32767)
    return Versions(int(first), int(last) if dash else int(first))
