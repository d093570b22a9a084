"""Builds the optional C kernels; everything else about the package is in pyproject.toml.

Each kernel has a pure-Python twin that the same tests cover, so a machine without a compiler still gets
a working headrace: `optional=True` turns a failed build into a warning.
"""

from pathlib import Path

from setuptools import Extension, setup

KERNELS = [
    "src/headrace/pipeline/decoder/_kernel.c",
    "src/headrace/records/_stretch.c",
    "src/headrace/records/_walk.c",
    "src/headrace/blob/_through.c",
    "src/headrace/log/_append.c",
    "src/headrace/log/wal/_flusher.c",
    "src/headrace/doors/_sending.c",
    "src/headrace/doors/kafka/_produce.c",
]


def module_name(source: str) -> str:
    return ".".join(Path(source).with_suffix("").parts[1:])


def headers(source: str) -> list[str]:
    """Those beside it, and the one that all share."""
    return ["src/headrace/kernel.h", *sorted(map(str, Path(source).parent.glob("*.h")))]


setup(
    ext_modules=[
        Extension(module_name(source), [source], depends=headers(source), extra_compile_args=["-O3"], optional=True)
        for source in KERNELS
        if Path(source).exists()
    ]
)
