"""GET /metrics: every number of the node, in the Prometheus text format."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from headrace.admin.session import Node


async def handle(node: Node, request: Request) -> Response:
    return Response(node.metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})
