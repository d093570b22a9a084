"""For tests of a C kernel itself."""

from typing import Any

import pytest

from headrace.compiled import compiled


def kernel_or_skip(name: str) -> Any:  # Any: a module
    """The kernel; the tests of a module that asks for it are skipped where it was not built, and in a pure run."""
    kernel = compiled(name)
    if kernel is None:
        pytest.skip(f"no {name} in this run", allow_module_level=True)
    return kernel
