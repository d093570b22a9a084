"""GET /health: 200 when the node is ready, 503 while it is not, the same JSON either way.

GET /ready says the same in one word, for who only wants to know whether to send traffic here.
"""

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


async def handle_ready(node: Node, request: Request) -> Response:
    is_ready = node.health().is_ready
    return Response(
        "ready\n" if is_ready else "not ready\n",
        status_code=200 if is_ready else 503,
        media_type="text/plain",
        headers={"cache-control": "no-store"},
    )
