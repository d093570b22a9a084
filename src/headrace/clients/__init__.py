"""Clients for the protocols that have none of their own in Python: RustLog, mlog, Logjam."""

from headrace.clients.errors import ClientError, ServerError
from headrace.clients.logjam import AsyncLogjamClient, LogjamClient, LogjamPushClient, LogjamSubscriber
from headrace.clients.mlog import BlockingMlogClient, MlogClient
from headrace.clients.retry import CircuitOpen, RetryPolicy
from headrace.clients.rustlog import BlockingRustLogClient, RustLogClient

__all__ = [
    "AsyncLogjamClient",
    "BlockingMlogClient",
    "BlockingRustLogClient",
    "CircuitOpen",
    "ClientError",
    "LogjamClient",
    "LogjamPushClient",
    "LogjamSubscriber",
    "MlogClient",
    "RetryPolicy",
    "RustLogClient",
    "ServerError",
]
