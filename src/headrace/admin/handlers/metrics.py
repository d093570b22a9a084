"""GET /metrics: every number of the node, in the Prometheus text format.

Numbers are gathered a few hundred at a time, with turns of the loop for everybody else in between, and once for all who ask
meanwhile.
"""

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from headrace.admin.session import Node
from headrace.telemetry.metrics import Metrics


class MetricsPage:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._under_way: asyncio.Task[bytes] | None = None

    async def handle(self, request: Request) -> Response:
        if self._under_way is None:
            self._under_way = asyncio.create_task(_render(self._node.metrics))
            self._under_way.add_done_callback(self._done)
        page = await asyncio.shield(self._under_way)
        return Response(page, headers={"content-type": CONTENT_TYPE_LATEST})

    def _done(self, _: "asyncio.Task[bytes]") -> None:
        self._under_way = None


async def _render(metrics: Metrics) -> bytes:
    pieces = []
    for piece in metrics.render_in_steps():
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces)
