"""A module for `headrace.forks`: says what it was told, in capitals; or waits for ever."""

import sys
import time


def main() -> None:
    said = sys.stdin.buffer.readline()
    sys.stdout.buffer.write(said.upper())
    sys.stdout.buffer.flush()
    while said == b"stay\n":
        time.sleep(60)
