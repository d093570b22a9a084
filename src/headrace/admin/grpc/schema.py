"""The route table as protobuf: one service, one request and one response message for each route.

Descriptors are made from the structs when the door opens, so there is no second description of the API that could differ.
`proto_text` writes the same as a `.proto` file for clients that generate code.

Fields are numbered in the order in which their struct declares them: a field may be added at the end of a struct, and nowhere else.
What may be absent in JSON is `optional`; anything at all (the result of an operation) is a `google.protobuf.Value`.
"""

from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import DESCRIPTOR as STRUCT_FILE

from headrace.admin.api.table import ROUTES, Route

PACKAGE: Final = "headrace.admin.v1"
SERVICE: Final = "AdminService"
FILE: Final = "headrace/admin/v1/admin.proto"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {bool: _FIELD.TYPE_BOOL, int: _FIELD.TYPE_INT64, float: _FIELD.TYPE_DOUBLE, str: _FIELD.TYPE_STRING}
_WORDS: Final = {
    _FIELD.TYPE_BOOL: "bool",
    _FIELD.TYPE_INT64: "int64",
    _FIELD.TYPE_DOUBLE: "double",
    _FIELD.TYPE_STRING: "string",
}


def request_name(route: Route) -> str:
    return f"{route.name}Request"


def response_name(route: Route) -> str:
    return f"{route.name}Response"


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """Each call has a request and a response of its own, as buf's style asks; what they share are messages of their own."""
    file = descriptor_pb2.FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    service = file.service.add(name=SERVICE)
    made: set[str] = set()
    for route in ROUTES:
        _add_message(file, request_name(route), route.request, made)
        _add_message(file, response_name(route), route.response, made)
        service.method.add(
            name=route.name,
            input_type=f".{PACKAGE}.{request_name(route)}",
            output_type=f".{PACKAGE}.{response_name(route)}",
        )
    return file


def _add_message(
    file: descriptor_pb2.FileDescriptorProto, name: str, struct: Any, made: set[str]
) -> None:  # Any: a struct type
    if name in made:
        return
    made.add(name)
    message = file.message_type.add(name=name)
    for number, field in enumerate(msgspec.structs.fields(struct), 1):
        _add_field(file, message, field.encode_name, number, field.type, made)


def _add_field(
    file: descriptor_pb2.FileDescriptorProto,
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: Any,  # Any: an annotation
    made: set[str],
) -> None:
    plain, is_optional = plain_type(kind)
    origin, arguments = get_origin(plain), get_args(plain)
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL, json_name=name)
    if origin in (list, tuple):
        field.label = _FIELD.LABEL_REPEATED
        item, is_hollow = plain_type(arguments[0])
        if is_hollow:
            field.type, field.type_name = _FIELD.TYPE_MESSAGE, ".google.protobuf.Value"
        else:
            _set_type(file, field, item, made)
        return
    if origin is dict:
        entry = message.nested_type.add(name="".join(word.capitalize() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add_field(file, entry, "key", 1, arguments[0], made)
        _add_field(file, entry, "value", 2, arguments[1], made)
        field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"
        return
    _set_type(file, field, plain, made)
    if is_optional and field.type != _FIELD.TYPE_MESSAGE:
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def _set_type(
    file: descriptor_pb2.FileDescriptorProto, field: descriptor_pb2.FieldDescriptorProto, plain: Any, made: set[str]
) -> None:  # Any: an annotation
    if plain in _SCALARS:
        field.type = _SCALARS[plain]
    elif get_origin(plain) is Literal or (isinstance(plain, type) and issubclass(plain, Enum)):
        field.type = _FIELD.TYPE_STRING
    elif plain is Any:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, ".google.protobuf.Value"
    else:
        _add_message(file, plain.__name__, plain, made)
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{plain.__name__}"


def plain_type(kind: Any) -> tuple[Any, bool]:  # Any: an annotation
    """Without its bounds, and whether it may be absent."""
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not NoneType]
        assert len(rest) == 1, f"{kind}: protobuf has no such choice"
        return plain_type(rest[0])[0], True
    return kind, False


class Messages:
    """The classes of every request and response."""

    def __init__(self) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self.pool.AddSerializedFile(STRUCT_FILE.serialized_pb)
        self.pool.Add(file_descriptor())

    def of(self, name: str) -> type[Message]:
        found: type[Message] = message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        return found


def proto_text() -> str:
    """The same as a `.proto` file."""
    file = file_descriptor()
    sentences = {route.name: route.sentence for route in ROUTES}
    lines = [
        "// Generated by tools/gen_reference.py. Do not edit.",
        'syntax = "proto3";',
        "",
        f"package {PACKAGE};",
        "",
        'import "google/protobuf/struct.proto";',
        "",
        f"service {SERVICE} {{",
    ]
    for method in file.service[0].method:
        lines.append(f"  // {sentences[method.name]}")
        lines.append(f"  rpc {method.name}({method.name}Request) returns ({method.name}Response);")
    lines.append("}")
    for message in file.message_type:
        lines += ["", f"message {message.name} {{", *_field_lines(message), "}"]
    return "\n".join(lines) + "\n"


def _field_lines(message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    entries = {f".{PACKAGE}.{message.name}.{entry.name}": entry for entry in message.nested_type}
    for field in message.field:
        entry = entries.get(field.type_name)
        if entry is not None:
            yield f"  map<{_word(entry.field[0])}, {_word(entry.field[1])}> {field.name} = {field.number};"
            continue
        is_repeated = field.label == _FIELD.LABEL_REPEATED
        before = "repeated " if is_repeated else "optional " if field.proto3_optional else ""
        yield f"  {before}{_word(field)} {field.name} = {field.number};"


def _word(field: descriptor_pb2.FieldDescriptorProto) -> str:
    if field.type == _FIELD.TYPE_MESSAGE:
        return field.type_name.removeprefix(f".{PACKAGE}.").removeprefix(".")
    return _WORDS[field.type]
