"""The `headrace.yml` that `headrace pipeline init` and a node's first start write: what one would type, the rest explained.

The pipelines that run by default stand here and nowhere else.
"""

from pathlib import Path
from typing import Final

from headrace.errors import AlreadyExists
from headrace.pipeline.settings import PipelineConfig

_TEMPLATE: Final = """\
# Pipelines of headrace: from topics to Iceberg tables, with Spark. Paths are relative to this file.
# `headrace pipeline run` runs them all; docs/pipeline/tutorial.md explains each key.

source:
  bootstrap_servers: "{bootstrap_servers}"   # the live end of the log
  bucket: "{bucket}"                         # its objects; without brokers, reading ends where uploading got to

spark:
  master: "local[*]"                         # or spark://host:7077, yarn, k8s://...
  driver_memory: 2g

warehouse:
  path: "{warehouse}"                        # a SQLite catalog and the tables' files
  # catalog:                                 # any other catalog, by pyiceberg's properties
  #   type: rest
  #   uri: https://catalog.example.com
  #   token: ${{CATALOG_TOKEN}}              # from the environment

checkpoints: "{checkpoints}"
state_dir: "{state_dir}"

# upkeep:                                    # of the tables, beside the queries
#   every_minutes: 60                        # few files, few snapshots; 0 leaves it to `headrace pipeline compact`
#   orphan_age_minutes: 180                  # how long unreferenced files stay, for readers that planned before
#   snapshots_kept: 50                       # of each table, for queries of the past; tags and branches stay anyway
#   snapshot_age_minutes: 0                  # and all that are younger than this

pipelines:
  bronze:
    kind: bronze
    subscribePattern: ".*"
    failOnDataLoss: false                    # go on when a topic is deleted
    trigger_seconds: 5                       # rows are seen within ten: half of that for waiting, half for the batch

  logjam_minute:
    kind: logjam_minute
    subscribePattern: "logjam-.*"
    failOnDataLoss: false

  # orders:
  #   kind: silver
  #   subscribe: orders
  #   table: silver.orders
  #   schema: "id BIGINT NOT NULL, customer STRING, price DOUBLE, created_at TIMESTAMP"
  #   event_time: created_at
"""


def write_template(path: Path, config: PipelineConfig) -> None:
    """Raises `AlreadyExists` rather than overwrite what somebody wrote."""
    if path.exists():
        raise AlreadyExists(f"{path} is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        _TEMPLATE.format(
            bootstrap_servers=config.source.bootstrap_servers,
            bucket=config.source.bucket,
            warehouse=config.warehouse.path,
            checkpoints=config.checkpoints,
            state_dir=config.state_dir,
        )
    )
