"""List prices of an object store, for whoever wants to know what a month costs. Facts of others: dated, and easy to replace.

AWS, us-east-1: S3 Standard requests and its first 50 TB of storage (https://aws.amazon.com/s3/pricing). Checked against comparisons
that others published between January 2021 and May 2026, which agree; not against that page itself. AWS counts a GB as 2**30
bytes. Transfer within the region is free; machines and discounts are left out.
"""

from collections.abc import Mapping
from typing import Final

PRICES_FROM: Final = "2026-05"
BUCKET_GIB_MONTH: Final = 0.023

_PUT_OR_LIST: Final = 0.005 / 1000
_GET: Final = 0.0004 / 1000
_BILLED_AS_PUT: Final = ("put", "put_if_absent", "list")
_BILLED_AS_GET: Final = ("get", "get_range", "head")
"""Deletions are free."""


def request_dollars(*, puts: float, gets: float, lists: float) -> float:
    return (puts + lists) * _PUT_OR_LIST + gets * _GET


def dollars_of(requests: Mapping[str, int]) -> float:
    """By the names that this node counts its requests by."""
    puts = sum(requests.get(name, 0) for name in _BILLED_AS_PUT)
    gets = sum(requests.get(name, 0) for name in _BILLED_AS_GET)
    return request_dollars(puts=puts, gets=gets, lists=0)


def storage_dollars_per_month(size_bytes: int) -> float:
    return size_bytes / 2**30 * BUCKET_GIB_MONTH
