"""Typed tables and their dead letters."""

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for, rows

from headrace.clock import SystemClock
from headrace.errors import Invalid
from headrace.pipeline.jobs.backfill import Backfill, Wanted
from headrace.pipeline.jobs.replay import replay_dead_letters
from headrace.pipeline.jobs.silver import Silver
from headrace.pipeline.payload_schema import from_json_schema, payload_shape
from headrace.pipeline.queries import bind_tables, make_landing, open_tables
from headrace.pipeline.schemas import RECORD_DDL
from headrace.pipeline.settings import Expectation, PipelineConfig, SilverSettings
from headrace.pipeline.steps.typed import accepted, dead_letters, judge
from headrace.records.record import NewRecord

SCHEMA = "id BIGINT NOT NULL, price DOUBLE, at TIMESTAMP"
NOW = datetime(2026, 1, 1)


def record(offset: int, value: str | None) -> tuple[object, ...]:
    return (None, None if value is None else value.encode(), "orders", 0, offset, NOW, 0, None)


def settings(**given: object) -> SilverSettings:
    return SilverSettings(subscribe="orders", table="silver.orders", **given)  # type: ignore[arg-type]


def test_each_record_is_typed_or_dead_with_the_reason(spark: SparkSession) -> None:
    shape = payload_shape(settings(schema=SCHEMA, event_time="at"))
    payloads = [
        '{"id": 1, "price": 2.5, "at": "2026-01-01T10:00:00Z", "extra": true}',
        None,
        "not json at all",
        "[1, 2]",
        '{"id": "one", "at": "2026-01-01T10:00:00Z"}',
        '{"price": 1.0, "at": "2026-01-01T10:00:00Z"}',
        '{"id": 2}',
        '{"id": 3, "at": "+12026-01-01T10:00:00Z"}',
        '{"id": 4, "price": null, "at": "2026-01-01T10:00:00Z"}',
    ]
    frame = spark.createDataFrame([record(i, p) for i, p in enumerate(payloads)], RECORD_DDL)
    judged = judge(frame, shape)
    good = [(row.id, row.price, row._offset) for row in accepted(judged, shape).orderBy("_offset").collect()]
    assert good == [(1, 2.5, 0), (4, None, 8)]
    dead = {row.offset: row.reason for row in dead_letters(judged, NOW).collect()}
    assert dead == {
        1: "no value",
        2: "not JSON",
        3: "not a JSON object",
        4: "does not fit the schema",
        5: "required column missing",
        6: "no event time",
        7: "absurd event time",
    }


def test_schemaless_json_is_kept_whole_with_promoted_columns(spark: SparkSession) -> None:
    from headrace.pipeline.steps.typed import Promoted

    shape = payload_shape(settings(promote={"customer": Promoted("$.customer.id", "BIGINT")}))
    frame = spark.createDataFrame([record(0, '{"customer": {"id": 7}, "x": [1]}'), record(1, "{")], RECORD_DDL)
    (row,) = accepted(judge(frame, shape), shape).collect()
    assert (row.customer, row.value) == (7, '{"customer": {"id": 7}, "x": [1]}')


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("price > 0", [0]),
        ("NAME = 'the price' OR `odd name` = 1", [0, 1]),
        ("concat(name, ' price') = 'the price price'", [0]),
        ("exists(tags, price -> price = 'name')", [1]),
        ("CASE WHEN size(tags) > 0 THEN price / 0 > 1 ELSE true END", [0, 2]),
        ("box.price > 0 AND topic IS NULL", [2]),
    ],
)
def test_a_condition_means_what_sparks_parser_says(spark: SparkSession, condition: str, kept: list[int]) -> None:
    """Names in strings, in lambdas and of fields are not columns; columns of the record are not those of the payload."""
    schema = "name STRING, price DOUBLE, tags ARRAY<STRING>, box STRUCT<price: INT>, `odd name` INT, topic STRING"
    otherwise = {"rule": Expectation(that=condition, otherwise="drop")}
    shape = payload_shape(settings(schema=schema, expectations=otherwise))
    payloads = [
        '{"name": "the price", "price": 1, "tags": [], "topic": "x"}',
        '{"name": "", "price": -1, "tags": ["name"], "odd name": 1}',
        '{"name": "", "tags": [], "box": {"price": 3}}',
    ]
    frame = spark.createDataFrame([record(i, p) for i, p in enumerate(payloads)], RECORD_DDL)
    judged = judge(frame, shape)
    assert [row._offset for row in accepted(judged, shape).orderBy("_offset").collect()] == kept
    letters = dead_letters(judged, NOW).collect()
    assert {(row.reason, row.detail) for row in letters} == {("expectation not met", "rule")}
    assert {row.topic for row in letters} == {"orders"}


def test_a_json_schema_becomes_columns() -> None:
    schema = from_json_schema(
        {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer"},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "size": {"type": "object", "properties": {"w": {"type": "number"}}},
                "note": {"type": ["null", "string"]},
            },
        }
    )
    assert schema.simpleString() == (
        "struct<id:bigint,at:timestamp,tags:array<string>,size:struct<w:double>,note:string>"
    )
    assert [field.nullable for field in schema.fields] == [False, True, True, True, True]


def test_an_event_time_that_is_no_column_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Invalid, match="event_time when is not one of the columns"):
        payload_shape(settings(schema=SCHEMA, event_time="when"))


@pytest.fixture
def config(bucket: LocalBucket, tmp_path: Path) -> PipelineConfig:
    bucket.create_topic("orders")
    return config_for(bucket, tmp_path, {"orders": silver_of("id BIGINT, at TIMESTAMP")})


def silver_of(schema: str) -> dict[str, object]:
    return {"kind": "silver", "subscribe": "orders", "table": "silver.orders", "schema": schema, "event_time": "at"}


def produce(bucket: LocalBucket, *payloads: str) -> None:
    bucket.append("orders", 0, [NewRecord(value=payload.encode(), timestamp_ms=1) for payload in payloads])


NESTED = "id INT, price DECIMAL(5,2), place STRUCT<city: STRING, at: STRUCT<x: INT>>, lines ARRAY<STRUCT<n: INT, sum: DECIMAL(5,2)>>, by MAP<STRING, STRUCT<n: INT>>"
SAYS_MORE = [
    ('{"id": 1} {"id": 2}', "more than one JSON document", None),
    ('{"id": 1}]', "more than one JSON document", None),
    ('{"id": 1}}', "more than one JSON document", None),
    ('{"id": 1}, {"id": 2}', "more than one JSON document", None),
    ('{"id": 1, "ID": 2}', "unknown field", "ID"),
    ('{"id": 1, "id": 2}', "unknown field", "id"),
    ('{"id": 1, "it\'s": [1]}', "unknown field", "it's"),
    ('{"place": {"city": "Rome", "zip": null}}', "unknown field", "place"),
    ('{"place": {"at": {"x": 1, "y": 2}}}', "unknown field", "place"),
    ('{"lines": [{"n": 1}, null, {"m": 1}]}', "unknown field", "lines"),
    ('{"by": {"a": {"n": 1}, "b": {"k": 1}}}', "unknown field", "by"),
    ('{"price": 1.239}', "more digits than the column has", "price"),
    ('{"price": "1.239"}', "more digits than the column has", "price"),
    ('{"lines": [{"sum": 1.2}, {"sum": 0.001}]}', "more digits than the column has", "lines"),
]
SAYS_ALL = [
    ' {"id": 1, "price": 1.20, "place": {"city": null}, "lines": [{"n": 1, "sum": 1.230}], "by": {"a": {"n": 1}}} ',
    '{"price": 1, "place": null, "lines": [null], "by": {"a": null}}',
    '{"price": 12e-1, "lines": [], "by": {}}',
]


def test_what_a_row_cannot_hold_is_rescued_or_refused_and_never_lost_unasked(spark: SparkSession) -> None:
    texts = [text for text, _, _ in SAYS_MORE] + SAYS_ALL
    frame = spark.createDataFrame([record(i, text) for i, text in enumerate(texts)], RECORD_DDL)
    kept = {}
    for strictness in ("rescue", "strict", "lenient"):
        shape = payload_shape(settings(schema=NESTED, strictness=strictness))
        judged = judge(frame, shape)
        rows = accepted(judged, shape).collect()
        dead = {row.offset: (row.reason, row.column_name) for row in dead_letters(judged, NOW).collect()}
        kept[strictness] = {row._offset: row for row in rows}
        assert ("_rescued" in shape.table_schema().fieldNames()) == (strictness == "rescue")
        if strictness == "strict":
            assert dead == {i: (reason, column) for i, (_, reason, column) in enumerate(SAYS_MORE)}
        else:
            assert dead == {}
    assert {i: row._rescued for i, row in kept["rescue"].items()} == {
        i: text if i < len(SAYS_MORE) else None for i, text in enumerate(texts)
    }
    assert sorted(kept["strict"]) == list(range(len(SAYS_MORE), len(texts)))


def test_dead_letters_name_the_column(spark: SparkSession) -> None:
    schema = "id INT NOT NULL, place STRUCT<city: STRING, zip: INT>, lines ARRAY<STRUCT<n: INT>>, at TIMESTAMP"
    shape = payload_shape(settings(schema=schema, event_time="at"))
    at = '"at": "2026-01-01T10:00:00Z"'
    expected = [
        (f'{{"id": "one", {at}}}', "does not fit the schema", "id"),
        (f'{{"id": 1, "place": {{"city": "Rome", "zip": "many"}}, {at}}}', "does not fit the schema", "place"),
        (f'{{"id": 1, "lines": [{{"n": 1}}, {{"n": "two"}}], {at}}}', "does not fit the schema", "lines"),
        (f"{{{at}}}", "required column missing", "id"),
        ('{"id": 1}', "no event time", "at"),
        ("poison", "not JSON", None),
    ]
    frame = spark.createDataFrame([record(i, text) for i, (text, _, _) in enumerate(expected)], RECORD_DDL)
    letters = dead_letters(judge(frame, shape), NOW).orderBy("offset").collect()
    assert [(row.reason, row.column_name) for row in letters] == [(reason, column) for _, reason, column in expected]


@pytest.mark.slow
def test_poison_records_do_not_stop_the_stream_and_are_replayed_after_a_fix(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, tmp_path: Path
) -> None:
    produce(
        bucket,
        '{"id": 1, "at": "2026-01-01T10:00:00Z"}',
        "poison",
        '{"id": "two", "at": "2026-01-02T10:00:00Z"}',
    )
    catch_up(spark, config, "orders")
    assert [row.id for row in rows(spark, config, "silver.orders").collect()] == [1]
    assert rows(spark, config, "silver.orders_dead_letters").count() == 2

    fixed = config_for(
        bucket, tmp_path, {"orders": {**silver_of("name STRING, at TIMESTAMP"), "table": "silver.fixed"}}
    )
    fixed_silver = silver_of("id BIGINT, at TIMESTAMP, name STRING")
    fixed = config_for(bucket, tmp_path, {"orders": fixed_silver})
    produce(bucket, '{"id": 4, "at": "2026-01-01T11:00:00Z", "name": "new column"}')
    catch_up(spark, fixed, "orders")
    found = {row.id: row.name for row in rows(spark, fixed, "silver.orders").collect()}
    assert found == {1: None, 4: "new column"}

    # The fix: a column that takes both spellings.
    lenient = make_landing("orders", settings(schema="id BIGINT, at TIMESTAMP, name STRING", event_time="at"))
    assert isinstance(lenient, Silver)
    bind_tables(lenient, open_tables(fixed))
    tables = open_tables(fixed)
    main, dead = tables.open("silver.orders"), tables.open("silver.orders_dead_letters")
    before = replay_dead_letters(spark, lenient, main, dead, SystemClock())
    assert (before.accepted, before.still_dead) == (0, 2)
    # Replaying with the letters' own schema fixed in the data's favour: `id` may be text.
    texty = Silver(
        "orders",
        lenient.subscription,
        table="silver.texty",
        dead_table="silver.orders_dead_letters",
        shape=payload_shape(settings(schema="id STRING, at TIMESTAMP", event_time="at")),
    )
    (texty_definition, _) = texty.definitions()
    replayed = replay_dead_letters(spark, texty, tables.ensure(texty_definition), dead, SystemClock())
    assert (replayed.accepted, replayed.still_dead) == (1, 1)
    again = replay_dead_letters(spark, texty, tables.open("silver.texty"), dead, SystemClock())
    assert (again.accepted, again.still_dead) == (0, 1)
    assert [row.id for row in tables.open("silver.texty").read(spark).collect()] == ["two"]
    assert [row.reason for row in tables.open("silver.orders_dead_letters").read(spark).collect()] == ["not JSON"]


@pytest.mark.slow
def test_a_range_is_made_anew_in_one_overwrite_after_the_schema_was_fixed(
    spark: SparkSession, config: PipelineConfig, bucket: LocalBucket, tmp_path: Path
) -> None:
    bodies = [f'{{"id": {i}, "at": "2026-01-0{1 + i % 3}T10:00:00Z", "name": "n{i}"}}' for i in range(12)]
    produce(bucket, *bodies[:6], "poison", *bodies[6:])
    catch_up(spark, config, "orders")
    fixed = config_for(bucket, tmp_path, {"orders": silver_of("id BIGINT, at TIMESTAMP, name STRING")})
    landing = make_landing("orders", fixed.pipeline("orders"))
    tables = open_tables(fixed)
    bind_tables(landing, tables)
    snapshots = len(tables.open("silver.orders").handle.metadata.snapshots)
    wanted = Wanted(startingOffsets='{"orders": {"0": 2}}', endingOffsets='{"orders": {"0": 9}}')
    assert Backfill(spark, fixed, landing, wanted).replace() == 7
    assert len(tables.open("silver.orders").handle.metadata.snapshots) <= snapshots + 2, (
        "one overwrite, not one per file"
    )
    found = {row._offset: row.name for row in rows(spark, fixed, "silver.orders").collect()}
    assert found == {
        offset: f"n{offset - (offset > 6)}" if 2 <= offset < 9 else None for offset in range(13) if offset != 6
    }
    assert rows(spark, fixed, "silver.orders_dead_letters").count() == 1
