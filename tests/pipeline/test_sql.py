"""Queries of an administrator: what may be asked is answered, and nothing that reaches outside topics and tables is."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.support.bucket import LocalBucket
from tests.support.pipelines import catch_up, config_for

from headrace.pipeline.settings import PipelineConfig
from headrace.pipeline.sql.messages import Answered, QueryOrder, QueryRows, Refused
from headrace.pipeline.sql.permitted import LOCKED
from headrace.pipeline.sql.worker import Desk
from headrace.records.record import NewRecord

CANARY = "a-word-that-no-answer-may-have"
LARGEST = 2**63 - 1


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def config(spark: SparkSession, place: Path) -> PipelineConfig:
    """A topic with three records, and a table that has them."""
    bucket = LocalBucket(place / "objects")
    for name in ("orders", "other"):
        bucket.create_topic(name)
    bucket.append("other", 0, [NewRecord(value=CANARY.encode(), timestamp_ms=1)])
    values = [f'{{"n": {LARGEST - number}}}' for number in range(3)]
    bucket.append("orders", 0, [NewRecord(value=each.encode(), timestamp_ms=1) for each in values])
    config = config_for(bucket, place, {"bronze": {"kind": "bronze", "subscribe": "orders"}})
    catch_up(spark, config, "bronze")
    return config


@pytest.fixture(scope="module")
def desk(spark: SparkSession, config: PipelineConfig) -> Iterator[Desk]:
    """In a session of its own: it takes functions away that other tests need."""
    session = spark.newSession()
    for name, value in LOCKED.items():
        if name != "spark.sql.catalogImplementation":
            session.conf.set(name, value)
    yield Desk(session, config)
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def rows_of(desk: Desk, query: str, *, rows_max: int = 100, bytes_max: int = 100_000) -> QueryRows:
    answer = desk.answer(QueryOrder(query=query, rows_max=rows_max, bytes_max=bytes_max))
    assert isinstance(answer, Answered), answer
    return msgspec.json.decode(answer.result, type=QueryRows)


QUESTIONS: dict[str, list[list[str | None]]] = {
    "select 1 as one": [["1"]],
    "select offset, get_json_object(value, '$.n') from `topic.orders` order by offset limit 1": [["0", str(LARGEST)]],
    "select max(cast(value:n as bigint)) from (select parse_json(value) as value from `topic.orders`)": [
        [str(LARGEST)]
    ],
    "select count(*) from `bronze.records`": [["3"]],
    "with t as (select offset % 2 as o from `topic.orders`) select o, count(*) from t group by all having count(*) > 1": [
        ["0", "2"]
    ],
    "select a.offset, b.offset from `topic.orders` a join `topic.orders` b on a.offset = b.offset + 1 where b.offset in (select 1)": [
        ["2", "1"]
    ],
    "select x, y from values (1, 'a'), (2, null) as t(x, y)": [["1", "a"], ["2", None]],
    "select sum(id) over w as s from range(3) window w as (order by id)": [["0"], ["1"], ["3"]],
    "select item from (select array(1, 2) as a) lateral view explode(a) e as item": [["1"], ["2"]],
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select max(n) from r": [["3"]],
    "from range(5) |> where id > 2 |> select id": [["3"], ["4"]],
    "select transform(array(1, 2), x -> x + 1), named_struct('a', 9007199254740993), date '2026-01-31'": [
        ["[2,3]", '{"a":9007199254740993}', "2026-01-31"]
    ],
    "select id from range(4) qualify row_number() over (order by id desc) = 1": [["3"]],
    "select * from (select 1 as a, 2 as b) unpivot (v for n in (a, b))": [["a", "1"], ["b", "2"]],
    "select case when true then cast(1.5 as decimal(3, 1)) end, 1 = 1, null": [["1.5", "true", None]],
    "select 1 union all select 2 except select 2": [["1"]],
}


@pytest.mark.parametrize("query", QUESTIONS)
def test_what_may_be_asked_is_answered(desk: Desk, query: str) -> None:
    assert sorted(rows_of(desk, query).rows, key=str) == sorted(QUESTIONS[query], key=str)


def attacks(secret: Path) -> list[str]:
    call = "'java.lang.System', 'getenv', 'PATH'"
    return [
        # Files, by every name that Spark has for them.
        f"select * from text.`{secret}`",
        f"select * from `text`.`{secret}`",
        f"select * from `text.{secret}`",
        f"select * from csv.`file://{secret}`",
        f"select * from spark_catalog.text.`{secret}`",
        f"select * from binaryFile.`{secret.parent}`",
        f"with t as (select * from text.`{secret}`) select * from t",
        f"select (select max(value) from text.`{secret}`)",
        f"select 1 where exists (select * from text.`{secret}`)",
        f"select * from range(1), lateral (select * from text.`{secret}`)",
        f"select * from identifier('text.`' || '{secret}' || '`')",
        f"table text.`{secret}`",
        f"from text.`{secret}` |> select *",
        "select * from `topic.orders` with (`subscribe` = 'other')",
        "select * from `topic.orders` version as of 1",
        "select * from stream `topic.orders`",
        f"select * from read_files('{secret}')",
        f"select from_protobuf(x'00', 'a', '{secret}')",
        "select from_avro(x'00', '\"string\"', map('mode', 'FAILFAST'))",
        f"select xpath_string('<!DOCTYPE a [<!ENTITY e SYSTEM \"file://{secret}\">]><a>&e;</a>', 'a')",
        f"select from_xml('<a/>', 'b string', map('rowValidationXSDPath', '{secret}'))",
        # Java by its name, wherever a function can stand.
        f"select reflect({call})",
        f"select java_method({call})",
        f"select try_reflect({call})",
        f"select REFLECT({call})",
        f"select `reflect`({call})",
        f"select builtin.reflect({call})",
        f"select system.builtin.reflect({call})",
        f"select identifier('reflect')({call})",
        f"select 1 order by reflect({call})",
        f"select count(*) filter (where reflect({call}) is null)",
        f"select sum(id) over w from range(2) window w as (partition by reflect({call}))",
        f"select transform(array(1), x -> reflect({call}))",
        f"select * from values (reflect({call}))",
        f"select * from range(2) tablesample (reflect({call}) rows)",
        f"select * from range(2) limit length(reflect({call}))",
        f"select * from range(2) lateral view explode(array(reflect({call}))) e as item",
        f"select * from explode(array(reflect({call})))",
        f"select * from range(2) pivot (max(reflect({call})) for id in (1))",
        f"from range(1) |> extend reflect({call}) as x",
        # What stands around the query.
        "select ${env:PATH}",
        "select input_file_name() from `topic.orders`",
        "select current_user()",
        "select current_user",
        "select session_user, current_catalog",
        "select version()",
        "select * from python_worker_logs()",
        "set",
        "set spark.sql.runSQLOnFiles=true",
        "reset",
        "show tables",
        "show functions",
        "describe function reflect",
        f"describe table text.`{secret}`",
        "explain select 1",
        "list jars",
        # Doing something.
        f"add jar '{secret}'",
        f"add file '{secret}'",
        "create function f as 'org.example.F'",
        "create temporary function f() returns int return 1",
        "create function f() returns string language python as $$ return open('/etc/passwd').read() $$",
        f"create temporary view v using text options (path '{secret}')",
        f"create table t using text location '{secret}'",
        "create table t as select 1",
        "insert into `topic.orders` values (1)",
        f"insert overwrite directory '{secret.parent}/out' using text select 'x'",
        "from `topic.orders` insert into t select 1",
        "drop view `topic.orders`",
        "delete from `topic.orders`",
        "cache table t as select 1",
        "select transform(value) using 'cat' from `topic.orders`",
        "from `topic.orders` map value using 'cat'",
        "execute immediate 'select 1'",
        "begin select 1; end",
        "declare variable x = 1",
        "call p()",
        "use default",
        "refresh table t",
        "select 1; select 2",
        "select :name",
        # Views of names that are none.
        "select * from `topic.orders,other`",
        "select * from `topic.../../orders`",
        "select * from `topic.*`",
        "select * from `bronze.records/../x`",
        "select * from `bronze.nothing`",
        "select * from orders",
        "select * from global_temp.x",
        "",
        ";",
    ]


@pytest.mark.parametrize("number", range(len(attacks(Path("/x")))))
def test_nothing_reaches_outside(desk: Desk, place: Path, number: int) -> None:
    secret = place / "secret.txt"
    secret.write_text(CANARY)
    before = sorted(os.listdir(place))
    query = attacks(secret)[number]
    answer = desk.answer(QueryOrder(query=query, rows_max=10, bytes_max=10_000))
    assert isinstance(answer, Refused), f"{query}: {answer}"
    assert answer.reason
    assert "\n" not in answer.reason
    assert CANARY not in answer.reason
    assert sorted(os.listdir(place)) == before


def test_text_that_looks_like_a_name_or_a_variable_is_text(desk: Desk) -> None:
    assert rows_of(desk, "select '${env:HOME}', '`bronze.nothing`' -- `bronze.nothing`").rows == [
        ["${env:HOME}", "`bronze.nothing`"]
    ]


def test_what_is_too_much_is_cut_and_said_to_be(desk: Desk) -> None:
    by_rows = rows_of(desk, "select id from range(1000)", rows_max=3)
    assert (len(by_rows.rows), "more rows than the 3" in by_rows.cut) == (3, True)
    by_size = rows_of(desk, "select repeat('x', 100) as x from range(1000)", rows_max=900, bytes_max=1000)
    assert (len(by_size.rows), "fit into 1000 bytes" in by_size.cut) == (9, True)
    by_cell = rows_of(desk, "select repeat('é', 20000) as x")
    assert (by_cell.rows, "first 8192 characters" in by_cell.cut) == ([["é" * 8192]], True)
    whole = rows_of(desk, "select id from range(3)", rows_max=3)
    assert (len(whole.rows), whole.cut) == (3, "")


def test_columns_have_their_names_and_types_also_where_two_have_one_name(desk: Desk) -> None:
    found = rows_of(desk, "select 1 as a, 'x' as a, cast(2 as bigint) as `<b>`, '<script>' as s")
    assert [(each.name, each.type) for each in found.columns] == [
        ("a", "int"),
        ("a", "string"),
        ("<b>", "bigint"),
        ("s", "string"),
    ]
    assert found.rows == [["1", "x", "2", "<script>"]]


def test_what_breaks_while_it_runs_says_why_and_the_next_query_is_answered(desk: Desk) -> None:
    broken = desk.answer(
        QueryOrder(query="select parse_json(value) from values ('{') as t(value)", rows_max=1, bytes_max=99)
    )
    assert isinstance(broken, Refused)
    assert "MALFORMED" in broken.reason
    assert rows_of(desk, "select 1").rows == [["1"]]


def test_a_query_of_too_many_parts_is_refused(desk: Desk) -> None:
    query = "select " + ", ".join(["1"] * 4000)
    answer = desk.answer(QueryOrder(query=query, rows_max=1, bytes_max=1000))
    assert isinstance(answer, Refused)
    assert "parts" in answer.reason
