"""Which Java there is."""

import os
import shutil
from pathlib import Path

from headrace.errors import UnsupportedOperation


def find_java() -> Path | None:
    """The `java` that Spark would start: JAVA_HOME's, and only if that is not set the first on the path."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home, "bin", "java")
        return java if java.exists() else None
    found = shutil.which("java")
    return Path(found) if found else None


def require_java() -> None:
    if find_java() is not None:
        return
    if home := os.environ.get("JAVA_HOME"):
        raise UnsupportedOperation(f"JAVA_HOME is {home}, and there is no bin/java below it: correct it, or unset it")
    raise UnsupportedOperation("Spark needs Java 17: install it (e.g. openjdk-17-jre-headless) or set JAVA_HOME")
