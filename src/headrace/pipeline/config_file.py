"""Where the pipelines' configuration is. Imports nothing, for commands that may not need Spark."""

from pathlib import Path
from typing import Final

CONFIG_VARIABLE: Final = "HEADRACE_PIPELINE"
TEMPLATE_NAME: Final = "headrace.yml"
CONFIG_NAMES: Final = (TEMPLATE_NAME, f"data/pipeline/{TEMPLATE_NAME}")
"""Where a configuration is looked for: beside us, then where `headrace up` keeps its own."""


def found_config() -> Path | None:
    return next((Path(name) for name in CONFIG_NAMES if Path(name).exists()), None)
