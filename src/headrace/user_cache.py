"""Where what can be made or fetched again is kept for this user."""

import os
from pathlib import Path


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace"
