"""A topic's schema as its configs have it, and Protobuf values: bytes of the documentation, and of protoc's own encoder."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

from headrace.broker.topic_config import checked_config
from headrace.errors import Invalid
from headrace.records.schemas.value_schema import (
    BRIEF,
    SCHEMA_KIND,
    SCHEMA_MESSAGE,
    SCHEMA_TEXT,
    TEXT_LENGTH_MAX,
    WHOLE,
    ValueSchema,
    schema_of,
)

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Test1 { int32 a = 1; }
message Order {
  int64 id = 1;
  uint64 big = 2;
  string customer_name = 3;
  repeated Line lines = 4;
  map<string, double> prices = 5;
  google.protobuf.Timestamp at = 6;
  bytes blob = 7;
  oneof way { bool by_post = 8; Colour colour = 9; }
  enum Colour { RED = 0; BLUE = 1; }
  message Line { string what = 1; sint32 count = 2; }
}
message Nest { Nest inner = 1; }
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("proto")
    (made / "shop.proto").write_text(PROTO)
    return made


@pytest.fixture(scope="module")
def files(directory: Path) -> bytes:
    out = directory / "files"
    arguments = ["protoc", f"-I{directory}", f"-I{_wellknown()}", "--include_imports", f"--descriptor_set_out={out}"]
    assert protoc.main([*arguments, "shop.proto"]) == 0
    return out.read_bytes()


def _wellknown() -> Path:
    return Path(protoc.__file__).parent / "_proto"


def configured(files: bytes, message: str) -> dict[str, str]:
    return {SCHEMA_KIND: "protobuf", SCHEMA_TEXT: b64encode(files).decode(), SCHEMA_MESSAGE: message}


def schema(files: bytes, message: str) -> ValueSchema:
    found = schema_of(checked_config(configured(files, message)))
    assert found is not None
    return found


def encoded(directory: Path, message: str, text: str) -> bytes:
    """By protoc, which has nothing of the library that reads it."""
    arguments = [f"-I{directory}", f"-I{_wellknown()}", f"--encode={message}", "shop.proto"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


FRAMINGS = {
    "none": b"",
    "the first message": bytes.fromhex("000000002a00"),
    "the second message": bytes.fromhex("000000002a0202"),
    "a message in a message": bytes.fromhex("000000002a040200"),
}


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
def test_the_documentations_bytes_with_and_without_framing(files: bytes, framing: bytes) -> None:
    """Protocol Buffers, "Encoding": `a` is 150."""
    found = schema(files, "shop.Test1").decode(framing + bytes.fromhex("089601"))
    assert (found.json, found.reason) == (b'{"a":150}', "")


def test_what_protoc_writes_is_read_and_64_bits_stay_exact(directory: Path, files: bytes) -> None:
    text = """
        id: -9223372036854775808 big: 18446744073709551615 customer_name: "Zoë"
        lines { what: "tea" count: -3 } lines { what: "pot" }
        prices { key: "tea" value: 2.5 } at { seconds: 1767225600 } blob: "\\377" colour: BLUE
    """
    found = schema(files, "shop.Order").decode(encoded(directory, "shop.Order", text))
    assert found.json is not None, found.reason
    assert json.loads(found.json) == {
        "id": "-9223372036854775808",
        "big": "18446744073709551615",
        "customer_name": "Zoë",
        "lines": [{"what": "tea", "count": -3}, {"what": "pot"}],
        "prices": {"tea": 2.5},
        "at": "2026-01-01T00:00:00Z",
        "blob": "/w==",
        "colour": "BLUE",
    }


def test_what_cannot_be_read_has_a_reason(files: bytes) -> None:
    order = schema(files, "shop.Order")
    deep = b""
    for _ in range(150):
        deep = b"\x0a" + _varint(len(deep)) + deep
    nest = schema(files, "shop.Nest")
    for found in (
        order.decode(b"not a message"),
        order.decode(b"\0\0\0"),
        order.decode(bytes.fromhex("000000002a") + b"\xff" * 9),
        order.decode(bytes.fromhex("000000002afe01") + b"\x02" * 200),
        order.decode(bytes.fromhex("320b08ffffffffffffffff7f10")),
        order.decode(b"\x1a\x01\xff"),
        nest.decode(deep),
        order.decode(b"\x08" * 70_000),
        order.decode(b"\x08" * (WHOLE.bytes_max + 1)),
    ):
        assert found.json is None
        assert found.reason
    assert "up to 8192 are decoded here" in order.decode(b"\x08" * 9000, BRIEF).reason


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def test_a_list_decodes_less_than_a_record_by_itself() -> None:
    array = schema_of({SCHEMA_KIND: "avro", SCHEMA_TEXT: '{"type": "array", "items": "null"}'})
    assert array is not None
    of_3000 = bytes.fromhex("f02e00")
    assert array.decode(of_3000, BRIEF).reason == "it holds more than 2000 values"
    assert array.decode(of_3000).json == b"[" + b",".join([b"null"] * 3000) + b"]"


def test_without_a_schema_there_is_none() -> None:
    assert schema_of(checked_config({"retention.ms": "1"})) is None
    assert schema_of(checked_config({SCHEMA_KIND: "", SCHEMA_TEXT: ""})) is None


def test_a_broken_schema_is_refused_when_it_is_set(files: bytes) -> None:
    good = b64encode(files).decode()
    alone = FileDescriptorSet.FromString(files)
    del alone.file[0]
    for configs, sentence in (
        ({SCHEMA_KIND: "json"}, "value.schema.type: .*avro"),
        ({SCHEMA_KIND: "avro"}, "value.schema: there is none"),
        ({SCHEMA_TEXT: '"int"'}, "value.schema: value.schema.type must say"),
        ({SCHEMA_MESSAGE: "a.B"}, "value.schema.message: value.schema.type must say"),
        ({SCHEMA_KIND: "avro", SCHEMA_TEXT: "{"}, "value.schema: not JSON"),
        ({SCHEMA_KIND: "avro", SCHEMA_TEXT: '"int"', SCHEMA_MESSAGE: "a.B"}, "Avro has none"),
        ({SCHEMA_KIND: "avro", SCHEMA_TEXT: "x" * (TEXT_LENGTH_MAX + 1)}, "up to 65536 are possible"),
        ({SCHEMA_KIND: "protobuf", SCHEMA_TEXT: good}, "value.schema.message: which message"),
        (configured(files, "shop.Nothing"), "value.schema.message: the schema has no message 'shop.Nothing'"),
        ({**configured(files, "shop.Order"), SCHEMA_TEXT: "%%"}, "value.schema: not the base64"),
        ({**configured(files, "shop.Order"), SCHEMA_TEXT: "AAAA"}, "value.schema: not the base64"),
        (configured(alone.SerializeToString(), "shop.Order"), "the files do not fit together"),
    ):
        with pytest.raises(Invalid, match=sentence):
            checked_config(configs)
