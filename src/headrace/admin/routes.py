"""Paths of the admin door and who answers them."""

from functools import partial

from starlette.routing import BaseRoute, Route

from headrace.admin.handlers import health
from headrace.admin.handlers.metrics import MetricsPage
from headrace.admin.session import Node


def routes(node: Node) -> list[BaseRoute]:
    return [
        Route("/health", partial(health.handle, node), methods=["GET"]),
        Route("/ready", partial(health.handle_ready, node), methods=["GET"]),
        Route("/metrics", MetricsPage(node).handle, methods=["GET"]),
    ]
