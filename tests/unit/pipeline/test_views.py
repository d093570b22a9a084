"""What `sql` shows of the values that Spark collects."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType

from headrace.pipeline.views import plain_rows


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def time_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_are_shown_with_their_offset_wherever_the_machine_is(time_zone: None) -> None:
    kind = spark.TimestampType()
    # Two o'clock in the night when New York sets its clocks back comes twice.
    for moment in (datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC)):
        collected = kind.fromInternal(kind.toInternal(moment))
        assert collected.tzinfo is None, "that is how Spark collects them"
        schema = StructType(
            [
                StructField("at", kind),
                StructField("seen", spark.ArrayType(kind)),
                StructField("by", spark.MapType(spark.StringType(), StructType([StructField("at", kind)]))),
                StructField("wall", spark.TimestampNTZType()),
                StructField("day", spark.DateType()),
            ]
        )
        wall = datetime(2026, 11, 1, 2)
        (shown,) = plain_rows(
            [Row(collected, [collected, None], {"a": Row(collected)}, wall, date(2026, 11, 1))], schema
        )
        text = moment.isoformat()
        assert shown == {
            "at": text,
            "seen": [text, None],
            "by": {"a": {"at": text}},
            "wall": "2026-11-01T02:00:00",
            "day": "2026-11-01",
        }
        assert text.endswith("+00:00")


def test_bytes_are_shown_as_text_where_they_are_text() -> None:
    schema = StructType(
        [
            StructField("a", spark.BinaryType()),
            StructField("b", spark.BinaryType()),
            StructField("c", spark.DecimalType(3, 1)),
        ]
    )
    (shown,) = plain_rows([Row(bytearray("ü".encode()), bytearray(b"\xff"), Decimal("1.5"))], schema)
    assert json.dumps(shown, default=str) == json.dumps({"a": "ü", "b": "ff", "c": "1.5"})
