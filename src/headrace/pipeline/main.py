"""The pipeline's own process: `python -m headrace.pipeline.main`. The node starts it beside itself; its death hurts nobody."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import HeadraceError
from headrace.pipeline.config_file import TEMPLATE_NAME
from headrace.pipeline.java import require_java
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineConfig, embedded_config, load_config
from headrace.pipeline.template import write_template
from headrace.telemetry import configure_logging, get_logger

log = get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headrace.pipeline")
    add_arguments(parser)
    given = parser.parse_args(arguments)
    if given.umask is not None:
        # The node keeps its own files to itself; tables are for others to read.
        os.umask(given.umask)
    configure_logging()
    try:
        require_java()
        config = config_of(given)
    except HeadraceError as error:
        log.error("pipeline cannot start", error=str(error))
        return 1
    runner = Runner(config, list(config.pipelines), tell=lambda line: log.info("pipeline", says=line))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    return runner.run(parent_id=given.parent)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As `NodePlace` gives them to every process beside a node."""
    parser.add_argument("--data-dir", type=Path, required=True, help="the node's data directory")
    parser.add_argument("--bootstrap", required=True, help="host:port of the node's Kafka door")
    parser.add_argument("--bucket", required=True, help="URL or directory of the log's objects")
    parser.add_argument("--parent", type=int, help="process id to live no longer than")
    parser.add_argument("--umask", type=lambda text: int(text, 8), help="rights that new files do not have, in octal")


def config_of(given: argparse.Namespace) -> PipelineConfig:
    return config_beside_node(given.data_dir, bootstrap_servers=given.bootstrap, bucket=given.bucket)


def config_beside_node(data_dir: Path, *, bootstrap_servers: str, bucket: str) -> PipelineConfig:
    """`DATA_DIR/pipeline/headrace.yml`, written at the first start so that it can be changed; its source is the node."""
    directory = data_dir.absolute() / "pipeline"
    path = directory / TEMPLATE_NAME
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_template(path, embedded_config(bootstrap_servers=bootstrap_servers, bucket=bucket, data_dir=directory))
    config = load_config(path)
    source = msgspec.structs.replace(config.source, bootstrap_servers=bootstrap_servers, bucket=bucket)
    return msgspec.structs.replace(config, source=source)


if __name__ == "__main__":
    sys.exit(main())
