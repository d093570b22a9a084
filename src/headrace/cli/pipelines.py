"""The pipelines' configuration, and what it leads to, for the commands that work with it."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headrace.cli.presence import require_kafka
from headrace.pipeline.config_file import CONFIG_NAMES, found_config

if TYPE_CHECKING:  # Spark takes a second to import.
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from headrace.pipeline.settings import PipelineConfig


def load_settings(config: Path | None, master: str | None = None, remote: str | None = None) -> "PipelineConfig":
    from headrace.pipeline.settings import load_config

    settings = load_config(config or found_config() or Path(CONFIG_NAMES[0]))
    changes = {name: value for name, value in (("master", master), ("remote", remote)) if value is not None}
    return msgspec.structs.replace(settings, spark=msgspec.structs.replace(settings.spark, **changes))


def require_brokers(settings: "PipelineConfig") -> None:
    """Those that are configured: Spark would look for them for a minute, in silence. One elsewhere sees other nodes."""
    is_here = settings.spark.remote is None and settings.spark.master.startswith("local")
    if is_here and settings.source.bootstrap_servers:
        require_kafka(settings.source.bootstrap_servers)


def session(settings: "PipelineConfig") -> "AbstractContextManager[SparkSession]":
    from headrace.cli.spark import spark_session

    return spark_session(settings.spark)
