"""Paths of the admin door and who answers them."""

from functools import partial

from starlette.routing import BaseRoute, Route

from headrace.admin.handlers import health, metrics
from headrace.admin.session import Node


def routes(node: Node) -> list[BaseRoute]:
    return [
        Route("/health", partial(health.handle, node), methods=["GET"]),
        Route("/metrics", partial(metrics.handle, node), methods=["GET"]),
    ]
