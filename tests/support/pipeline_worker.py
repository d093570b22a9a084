"""A pipeline in a process of its own that may be killed: `python -m tests.support.pipeline_worker CONFIG NAME`."""

import sys
from pathlib import Path

from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import load_config


def main() -> int:
    config = load_config(Path(sys.argv[1]))
    return Runner(config, [sys.argv[2]], is_available_now=True, tell=print).run()


if __name__ == "__main__":
    sys.exit(main())
