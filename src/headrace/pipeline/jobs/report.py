"""`report`: one HTML page about the pipelines and about what flows through them."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, select_autoescape
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import Clock
from headrace.errors import NotFound
from headrace.pipeline.charts import Series, bar_chart, heat_map, line_chart
from headrace.pipeline.queries import open_tables
from headrace.pipeline.settings import BronzeSettings, LogjamSettings, PipelineConfig
from headrace.pipeline.status import read_status
from headrace.pipeline.steps.logjam_views import merge_minutes
from headrace.pipeline.tables.iceberg import IcebergTables
from headrace.pipeline.views import utc_time

MINUTES_SHOWN: Final = 24 * 60
PAGES_SHOWN: Final = 12
REQUESTS_SHOWN: Final = 50
RESOURCES_SHOWN: Final = 5


def write_report(spark: SparkSession, config: PipelineConfig, output: Path, clock: Clock) -> None:
    tables = open_tables(config)
    sections = [*_bronze_sections(spark, config, tables), *_logjam_sections(spark, config, tables)]
    environment = Environment(loader=PackageLoader("headrace.pipeline"), autoescape=select_autoescape())
    html = environment.get_template("report.html").render(
        made=datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        status=read_status(Path(config.state_dir)),
        sections=sections,
    )
    output.write_text(html)


# A section is what the template shows: a title, charts as SVG, and a small table.
Section = dict[str, Any]


def _bronze_sections(spark: SparkSession, config: PipelineConfig, tables: IcebergTables) -> list[Section]:
    sections = []
    for name, settings in config.pipelines.items():
        if not isinstance(settings, BronzeSettings):
            continue
        rows = _read(spark, tables, settings.table)
        if rows is None:
            continue
        per_minute = _newest(
            rows.groupBy(F.date_trunc("minute", "ingest_time").alias("time")).agg(
                F.count("*").alias("rows"),
                F.sum(F.length("value")).alias("bytes"),
                F.percentile_approx(_delay(), [0.5, 0.95, 0.99], 1000).alias("delay"),
            )
        )
        labels = [utc_time(row.time).strftime("%H:%M") for row in per_minute]
        topics = (
            rows.groupBy("topic").agg(F.count("*").alias("rows")).orderBy(F.desc("rows")).limit(PAGES_SHOWN).collect()
        )
        sections.append(
            {
                "title": f"{name}: every record",
                "charts": [
                    line_chart("Records landed per minute", labels, [_series("records", per_minute, "rows")]),
                    line_chart("Bytes landed per minute", labels, [_series("bytes", per_minute, "bytes")], unit="B"),
                    line_chart(
                        "From record time to table",
                        labels,
                        [
                            Series(name=label, values=[float(row.delay[index]) for row in per_minute])
                            for index, label in enumerate(("p50", "p95", "p99"))
                        ],
                        unit="s",
                    ),
                    bar_chart("Records by topic", [row.topic for row in topics], [float(row.rows) for row in topics]),
                ],
            }
        )
    return sections


def _logjam_sections(spark: SparkSession, config: PipelineConfig, tables: IcebergTables) -> list[Section]:
    sections = []
    for settings in config.pipelines.values():
        if not isinstance(settings, LogjamSettings):
            continue
        partials = _read(spark, tables, settings.table)
        if partials is None:
            continue
        merged = merge_minutes(partials).persist()
        streams = [row.stream for row in merged.select("stream").distinct().orderBy("stream").collect()]
        requests = _read(spark, tables, settings.requests_table)
        for stream in streams:
            section = _stream_section(merged.where(F.col("stream") == stream), stream)
            interesting = _interesting(requests.where(F.col("stream") == stream)) if requests is not None else []
            sections += [section, {"title": f"{stream}: requests worth a look", "table": request_table(interesting)}]
        merged.unpersist()
    return sections


def _stream_section(minutes: DataFrame, stream: str) -> Section:
    rows = _newest(minutes.where("scope = 'all_pages'"))
    labels = [utc_time(row.time).strftime("%H:%M") for row in rows]
    pages = (
        minutes.where("scope = 'page'")
        .groupBy("page")
        .agg(
            F.sum("count").alias("requests"),
            (F.sum(F.col("sums")["total_time"]) / F.sum("count")).alias("mean_ms"),
            F.max(F.col("maxima")["total_time"]).alias("max_ms"),
            F.sum(_server_errors()).alias("errors"),
            ((F.sum("apdex_satisfied") + F.sum("apdex_tolerating") / 2) / F.sum("count")).alias("apdex"),
        )
    )
    slowest = pages.orderBy(F.desc("mean_ms")).limit(PAGES_SHOWN).collect()
    return {
        "title": f"{stream}: requests",
        "charts": [
            line_chart("Requests per minute", labels, [_series("requests", rows, "count")]),
            line_chart(
                "Response time",
                labels,
                [_series(label, rows, f"total_time_{label}") for label in ("p50", "p95", "p99")],
                unit="ms",
            ),
            line_chart("Apdex", labels, [_series("apdex", rows, "apdex")]),
            line_chart(
                "Errors per minute",
                labels,
                [Series(name="5xx", values=[float(_errors_in(row.responses)) for row in rows])],
            ),
            resource_chart(labels, rows),
            response_chart(labels, rows),
            duration_chart(labels, rows),
            bar_chart(
                "Slowest pages, mean", [row.page for row in slowest], [row.mean_ms for row in slowest], unit="ms"
            ),
        ],
        "table": {
            "columns": ["page", "requests", "mean ms", "max ms", "errors", "apdex"],
            "rows": [
                [row.page, row.requests, f"{row.mean_ms:.0f}", f"{row.max_ms:.0f}", row.errors, f"{row.apdex:.2f}"]
                for row in pages.orderBy(F.desc("requests")).limit(50).collect()
            ],
        },
    }


# Rows as Spark collects them: their columns are those of `merge_minutes`, and have no types here.
def resource_chart(labels: list[str], rows: list[Any]) -> str:
    """Where the time goes: the mean of each `*_time` in a request, those that take the most."""
    totals: Counter[str] = Counter()
    for row in rows:
        totals.update({name: total for name, total in (row.sums or {}).items() if _is_resource(name)})
    series = [
        Series(
            name=name, values=[(row.sums or {}).get(name, 0.0) / row["count"] if row["count"] else None for row in rows]
        )
        for name, _ in totals.most_common(RESOURCES_SHOWN)
    ]
    return line_chart("Time per request", labels, series, unit="ms")


def response_chart(labels: list[str], rows: list[Any]) -> str:
    """Answers by the hundred of their code."""
    kinds = sorted({code[:1] for row in rows for code in row.responses or {}})

    def answers(row: Any, kind: str) -> float:
        return float(sum(count for code, count in (row.responses or {}).items() if code.startswith(kind)))

    series = [Series(name=f"{kind}xx", values=[answers(row, kind) for row in rows]) for kind in kinds]
    return line_chart("Responses per minute", labels, series)


def duration_chart(labels: list[str], rows: list[Any]) -> str:
    """How many requests took how long: X2.8's buckets, a decade in two steps."""
    buckets = sorted({bucket for row in rows for bucket in row.heatmap or {}}, key=float)
    counts = [[int((row.heatmap or {}).get(bucket, 0)) for bucket in buckets] for row in rows]
    return heat_map("Requests by duration", labels, [f"{bucket} ms" for bucket in buckets], counts)


def request_table(rows: list[Any]) -> dict[str, Any]:
    """What stands in the list of requests; the rest of each is in the table, by its id."""
    return {
        "columns": ["page", "started", "code", "ms", "severity", "why", "request id"],
        "rows": [
            [
                row.page,
                utc_time(row.started_time).strftime("%m-%d %H:%M:%S") if row.started_time else "",
                row.code,
                f"{row.total_time:.0f}",
                row.severity,
                ", ".join(row.reasons or ()),
                row.request_id or "",
            ]
            for row in rows
        ],
    }


def _is_resource(name: str) -> bool:
    return name.endswith("_time") and name not in ("total_time", "page_time", "ajax_time")


def _interesting(requests: DataFrame) -> list[Any]:
    columns = ("page", "started_time", "code", "total_time", "severity", "reasons", "request_id")
    return list(requests.select(*columns).orderBy(F.desc("started_time")).limit(REQUESTS_SHOWN).collect())


def _newest(frame: DataFrame) -> list[Any]:
    """The newest day of minutes, oldest first."""
    return list(reversed(frame.orderBy(F.desc("time")).limit(MINUTES_SHOWN).collect()))


def _series(name: str, rows: list[Any], column: str) -> Series:
    return Series(name=name, values=[None if row[column] is None else float(row[column]) for row in rows])


def _delay() -> Any:
    return F.unix_millis("ingest_time") / 1000 - F.unix_millis("timestamp") / 1000


def _server_errors() -> Any:
    counts = F.map_values(F.map_filter("responses", lambda code, _: code.startswith("5")))
    return F.aggregate(counts, F.lit(0).cast("bigint"), lambda total, count: total + count)


def _errors_in(responses: dict[str, int] | None) -> int:
    return sum(count for code, count in (responses or {}).items() if code.startswith("5"))


def _read(spark: SparkSession, tables: IcebergTables, name: str) -> DataFrame | None:
    try:
        return tables.open(name).read(spark)
    except NotFound:
        return None
