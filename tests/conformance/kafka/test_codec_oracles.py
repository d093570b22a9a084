"""Other people's codecs read what we write, field by field, and we read what they write.

kio and kafka-python were both generated from Kafka's own schemas. Each is given our bytes; its reading is compared
with our value field by field; then it writes that value itself, and we read it back. `LACKING` is what an oracle
does not have; every message with an API key has one at least.
"""

import dataclasses
import datetime
import importlib
import io
import pkgutil
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import kio.index
import kio.serial
import msgspec
import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType
from tests.support.kafka_messages import (
    SCHEMAS,
    class_of,
    encoded,
    every_version,
    fields_of,
    sample,
    struct_named,
)

from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.kafka.schema.parse import Field, StructSchema

# Values of two foreign libraries, which ship no usable types for them.
Foreign = Any

EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)

OLD_NAMES = {
    "v3_and_below_transactional_id": "transactional_id",
    "v3_and_below_producer_id": "producer_id",
    "v3_and_below_producer_epoch": "producer_epoch",
    "v3_and_below_topics": "topics",
    "results_by_topic_v3_and_below": "results_by_topic",
}
"""Names by which Kafka tells the fields of AddPartitionsToTxn up to v3 from those inside a transaction of v4."""


# What each oracle has


def is_known_to_kio(name: str, version: int) -> bool:
    schema = SCHEMAS[name]
    key = schema.api_key
    kio_name = class_of(name).__module__.rpartition(".")[2] if key is None else api_key_map.get(key, "")
    kind = EntityType.request if name.endswith("Request") else EntityType.response
    if key is None:
        kind = EntityType.data
    return kind in schema_name_map.get(kio_name, {}).get(version, {})


def _kafka_python_classes() -> dict[str, Foreign]:
    found: dict[str, Foreign] = {}
    with warnings.catch_warnings():
        # It loads its schemas through a deprecated function while it is imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka.protocol

        modules = [
            importlib.import_module(module.name)
            for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol.")
            if ".old" not in module.name and "generate" not in module.name
        ]
    for module in modules:
        for name, item in vars(module).items():
            if isinstance(item, type) and name in SCHEMAS:
                found[name] = item
    return found


KAFKA_PYTHON = _kafka_python_classes()


def is_known_to_kafka_python(name: str, version: int) -> bool:
    has_key = SCHEMAS[name].api_key is not None
    return has_key and name in KAFKA_PYTHON and version <= KAFKA_PYTHON[name].max_version


ORACLES = {"kio": is_known_to_kio, "kafka-python": is_known_to_kafka_python}
KNOWN = {oracle: [row for row in every_version() if knows(*row)] for oracle, knows in ORACLES.items()}


# kio


def kio_class(name: str, version: int) -> Foreign:
    key = SCHEMAS[name].api_key
    if key is None:
        snake = class_of(name).__module__.rpartition(".")[2]
        return kio.index.load_entity_schema(snake, version, EntityType.data)
    load = kio.index.load_request_schema if name.endswith("Request") else kio.index.load_response_schema
    return load(key, version)


def kio_plain(value: Foreign) -> Foreign:
    """kio's reading in the terms of ours: ints for times, bytes for ids."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def check_kio_struct(name: str, shape: StructSchema, ours: Foreign, theirs: Foreign, version: int) -> None:
    mine = fields_of(shape, version)
    yours = dataclasses.fields(theirs)
    assert len(mine) == len(yours), (shape.name, [field.name for field in mine], [field.name for field in yours])
    for field, other in zip(mine, yours, strict=True):
        assert OLD_NAMES.get(other.name, other.name) in (field.name, field.name.removesuffix("_ms"))
        check_kio_value(name, field, getattr(ours, field.name), getattr(theirs, other.name), version)


def check_kio_value(name: str, field: Field, ours: Foreign, theirs: Foreign, version: int) -> None:
    if field.is_array and ours is not None:
        assert len(ours) == len(theirs)
        one = element_of(field)
        for mine, yours in zip(ours, theirs, strict=True):
            check_kio_value(name, one, mine, yours, version)
    elif field.is_struct and ours is not None:
        check_kio_struct(name, struct_named(SCHEMAS[name], field.type), ours, theirs, version)
    elif field.is_struct and field.tag is not None:
        assert theirs == type(theirs)()
    elif field.type == "uuid":
        assert ours == (bytes(16) if theirs is None else theirs.bytes)
    else:
        assert ours == kio_plain(theirs), field.name


def element_of(field: Field) -> Field:
    return msgspec.structs.replace(field, is_array=False)


@pytest.mark.parametrize("kind", ["full", "bare"])
@pytest.mark.parametrize(("name", "version"), KNOWN["kio"])
def test_kio_agrees(name: str, version: int, kind: str) -> None:
    entity = kio_class(name, version)
    value = sample(name, version, kind)
    raw = encoded(value, version)

    theirs, size = kio.serial.entity_reader(entity)(raw, 0)

    assert size == len(raw)
    check_kio_struct(name, SCHEMAS[name].root, value, theirs, version)
    out = io.BytesIO()
    kio.serial.entity_writer(entity)(out, theirs)
    assert class_of(name).decode(out.getvalue(), version) == value


# kafka-python


def kafka_python_plain(value: Foreign) -> Foreign:
    """kafka-python's reading in the terms of ours: bytes for ids, a bit field for sets of operations."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, set):
        return sum(1 << bit for bit in value)
    return value


def check_kafka_python_struct(name: str, shape: StructSchema, ours: Foreign, theirs: Foreign, version: int) -> None:
    for field in fields_of(shape, version):
        other = next(known for known in kafka_python_names(field.name) if known in theirs.fields)
        check_kafka_python_value(name, field, getattr(ours, field.name), getattr(theirs, other), version)


def kafka_python_names(name: str) -> Iterator[str]:
    yield name
    yield from (old for old, new in OLD_NAMES.items() if new == name)
    if name.endswith("authorized_operations"):
        yield "authorized_operations"


def check_kafka_python_value(name: str, field: Field, ours: Foreign, theirs: Foreign, version: int) -> None:
    if field.is_array and ours is not None:
        assert len(ours) == len(theirs), field.name
        one = element_of(field)
        for mine, yours in zip(ours, theirs, strict=True):
            check_kafka_python_value(name, one, mine, yours, version)
    elif field.is_struct and ours is not None:
        check_kafka_python_struct(name, struct_named(SCHEMAS[name], field.type), ours, theirs, version)
    elif field.is_struct and field.tag is not None:
        pass
    else:
        assert ours == kafka_python_plain(theirs), field.name


@pytest.mark.parametrize("kind", ["full", "bare"])
@pytest.mark.parametrize(("name", "version"), KNOWN["kafka-python"])
def test_kafka_python_agrees(name: str, version: int, kind: str) -> None:
    value = sample(name, version, kind)
    if isinstance(value, ApiVersionsResponse):
        # It takes any error for an answer in v0, as brokers that do not know the version would send.
        value.error_code = 0

    theirs = KAFKA_PYTHON[name].decode(encoded(value, version), version=version)

    check_kafka_python_struct(name, SCHEMAS[name].root, value, theirs, version)
    theirs.with_header()
    assert class_of(name).decode(bytes(theirs.encode()), version) == value


# Both


INTERNAL_RECORDS = {
    "OffsetCommitKey",
    "OffsetCommitValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "TransactionLogKey",
    "TransactionLogValue",
}
LACKING = {
    "kio": INTERNAL_RECORDS,
    "kafka-python": {
        *INTERNAL_RECORDS,
        "ConsumerProtocolSubscription",
        "ConsumerProtocolAssignment",
        "ConsumerGroupHeartbeatRequest",
        "ConsumerGroupHeartbeatResponse",
        "ConsumerGroupDescribeRequest",
        "ConsumerGroupDescribeResponse",
    },
}


@pytest.mark.parametrize("oracle", ORACLES)
def test_oracles_lack_only_what_we_know_they_lack(oracle: str) -> None:
    lacking = [(name, version) for name, version in every_version() if (name, version) not in KNOWN[oracle]]
    print(f"{oracle} knows {len(KNOWN[oracle])} of {len(every_version())} layouts, not:")
    print("\n".join(f"  {name} v{version}" for name, version in lacking))
    assert {name for name, _ in lacking} == LACKING[oracle]


def test_error_codes_have_kafkas_numbers() -> None:
    from kio.schema.errors import ErrorCode as KioErrorCode

    assert {code.value for code in ErrorCode} == {code.value for code in KioErrorCode}
    assert {code.value: code.name for code in ErrorCode} == {code.value: code.name.upper() for code in KioErrorCode}
