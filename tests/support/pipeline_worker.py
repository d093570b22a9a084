"""A pipeline in a process of its own that may be killed: `python -m tests.support.pipeline_worker CONFIG NAME [forever]`.

Until it has caught up, or until SIGTERM where it says `forever`.
"""

import signal
import sys
from pathlib import Path

from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import load_config


def main() -> int:
    config = load_config(Path(sys.argv[1]))
    runner = Runner(config, [sys.argv[2]], is_available_now="forever" not in sys.argv[3:], tell=_say)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    return runner.run()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
