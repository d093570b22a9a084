"""`headrace-python`: the Python that Spark starts its workers with.

A query starts four Python processes one after the other, and Spark puts a zip of its own sources first on their path:
each compiles pyspark anew, for half a second. Where that zip is part of the pyspark that is installed here, the same code
lies beside it, compiled. So this becomes the Python it was installed for, with the zip left out. It imports nothing that
Python has not imported already, because every worker waits for it.
"""

import os
import sys


def main() -> None:
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(without_archives(paths, installed=sys.path))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def without_archives(paths: list[str], *, installed: list[str]) -> list[str]:
    """`paths` without the archives that a pyspark in one of the `installed` directories brings."""
    archives = {os.path.realpath(os.path.join(place, "pyspark", "python", "lib")) for place in installed}
    return [path for path in paths if os.path.realpath(os.path.dirname(path)) not in archives]
