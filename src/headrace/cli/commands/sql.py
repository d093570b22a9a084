"""`headrace sql`: topics and tables as views, queried with Spark SQL."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from msgspec import structs

from headrace.cli.options import NOT_NEGATIVE
from headrace.cli.output import note, show_table
from headrace.cli.pipelines import load_settings, require_brokers, session
from headrace.errors import NotFound, Unavailable

if TYPE_CHECKING:  # Spark takes a second to import.
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.settings import PipelineConfig

app = App(
    name="sql",
    help="Query topics and tables with SQL.",
    help_epilogue="""A topic is the view `topic.<name>`, with `value` as text; a table is the view `<namespace>.<table>`.
Topics are read to their end; with no broker there, as far as the bucket goes.

Examples:

    headrace sql 'select partition, count(*) from `topic.orders` group by all'
    headrace sql 'select * from `bronze.records` limit 5' --json
""",
)


@app.default
def sql(
    query: str,
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"], env_var="HEADRACE_PIPELINE")] = None,
    limit: Annotated[int, Parameter(name=["--limit", "-n"], validator=NOT_NEGATIVE)] = 1000,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run one query and show its rows.

    Parameters
    ----------
    query:
        Spark SQL.
    config:
        The pipelines' configuration, which says where topics and tables are.
    limit:
        Rows to show at most.
    json:
        Answer in JSON, for machines.
    """
    from headrace.pipeline.views import create_views, plain_rows

    settings = _reachable(load_settings(config), query)
    with session(settings) as spark:
        create_views(spark, settings, query)
        found = _plan(spark, query)
        rows = plain_rows(found.limit(limit).collect(), found.schema)
        show_table(rows, columns=found.columns, as_json=json)


def _reachable(settings: "PipelineConfig", query: str) -> "PipelineConfig":
    """With every broker stopped, topics are read as far as the bucket goes."""
    from headrace.pipeline.views import TOPIC_PREFIX

    if f"`{TOPIC_PREFIX}" not in query:
        return settings
    try:
        require_brokers(settings)
    except Unavailable as error:
        if not settings.source.bucket:
            raise
        note(f"{error}; topics are read as far as the bucket goes")
        return structs.replace(settings, source=structs.replace(settings.source, bootstrap_servers=""))
    return settings


def _plan(spark: "SparkSession", query: str) -> "DataFrame":
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(query)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        message = error.getMessage().partition(". ")[0]
        raise NotFound(f"{message}; names with a dot stand in backticks: `topic.orders`, `silver.orders`") from error
