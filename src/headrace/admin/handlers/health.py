"""GET /health: 200 when the node is ready, 503 while it is not, the same JSON either way."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.admin.session import Node


async def handle(node: Node, request: Request) -> Response:
    health = node.health()
    return Response(
        msgspec.json.encode(health),
        status_code=200 if health.is_ready else 503,
        media_type="application/json",
        headers={"cache-control": "no-store"},
    )
