"""How a door's map from our errors to its codes is read."""

from collections.abc import Mapping
from typing import TypeVar

Code = TypeVar("Code")


def nearest(codes: Mapping[type[BaseException], Code], error: BaseException) -> Code:
    """What the nearest mapped ancestor of the error has; every map ends at `BaseException`, for what nobody foresaw."""
    return next(codes[kind] for kind in type(error).__mro__ if kind in codes)
