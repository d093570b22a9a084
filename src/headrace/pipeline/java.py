"""Which Java there is."""

import os
import shutil
from pathlib import Path

from headrace.errors import UnsupportedOperation


def find_java() -> Path | None:
    """The `java` that Spark would start: JAVA_HOME's, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return java
    found = shutil.which("java")
    return Path(found) if found else None


def require_java() -> None:
    if find_java() is None:
        raise UnsupportedOperation("Spark needs Java 17: install it (e.g. openjdk-17-jre-headless) or set JAVA_HOME")
