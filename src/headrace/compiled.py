"""The C modules: where they were built, and where they are wanted.

Each has a twin in Python that does the same. HEADRACE_PURE=1 in the environment switches all of them off.
"""

import importlib
import os
from typing import Any


def compiled(name: str) -> Any | None:
    """The module, typed by whoever uses it, or None where its twin has to do."""
    if os.environ.get("HEADRACE_PURE"):
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
