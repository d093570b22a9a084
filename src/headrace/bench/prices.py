"""List prices, and what a terabyte costs by them. Facts of others: dated, and easy to replace.

Those of the bucket are in `blob/prices.py`. Beside them AWS, us-east-1: gp3 volumes (https://aws.amazon.com/ebs/pricing), transfer between availability zones, one cent per GB on either side
(https://aws.amazon.com/ec2/pricing/on-demand). Checked against comparisons that others published between January 2021
and May 2026, which agree; not against those pages themselves. AWS counts a GB as 2**30 bytes.
S3 takes nothing for transfer within its region. Machines and discounts are left out on both sides.
"""

from typing import Final

from headrace.blob.prices import BUCKET_GIB_MONTH, PRICES_FROM, request_dollars

__all__ = ["PRICES_FROM", "bucket_dollars_per_tib", "replicated_dollars_per_tib", "request_dollars"]

_DISK_GIB_MONTH: Final = 0.08
_ZONE_GIB: Final = 0.02

_GIB_PER_TIB: Final = 1024
_ZONES: Final = 3
_REPLICAS: Final = 3
_OTHER_ZONES: Final = (_ZONES - 1) / _ZONES
"""The part of a producer's records whose leader is in another zone than the producer."""


def bucket_dollars_per_tib(*, requests_per_gib: float) -> float:
    """A TiB that is written once, read back once and kept for a month; `requests_per_gib` is in dollars.

    Consumers of the tail in other zones pay for transfer too, here and at the rival: it is left out of both.
    """
    return _GIB_PER_TIB * (_OTHER_ZONES * _ZONE_GIB + requests_per_gib + BUCKET_GIB_MONTH)


def replicated_dollars_per_tib() -> float:
    """The same on brokers that keep three copies on disks in three zones, with disks that are never more than full.

    Transfer to the leader, from the leader to two followers, and a month of three copies. Reading back is free: from
    the replica in the reader's zone (KIP-392).
    """
    transfer = _OTHER_ZONES * _ZONE_GIB + (_REPLICAS - 1) * _ZONE_GIB
    return _GIB_PER_TIB * (transfer + _REPLICAS * _DISK_GIB_MONTH)
