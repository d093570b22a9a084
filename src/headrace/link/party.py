"""Who talks on the link: a broker in one of its incarnations, and how others find it."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias


class Party(NamedTuple):
    """A broker in one incarnation."""

    broker: str
    epoch: int


class Peer(NamedTuple):
    """Another broker as the cluster knows it now."""

    epoch: int
    host: str
    port: int
    """0: it has no link, or nobody knows it yet."""


Directory: TypeAlias = Callable[[str], Peer | None]
"""The brokers by name; None for one that is not there, or is fenced."""
Serve: TypeAlias = Callable[[Party, str, bytes], Awaitable[bytes]]
"""Answers a call: who calls, its kind, its body. What it does before it first waits happens in the order of the calls."""
