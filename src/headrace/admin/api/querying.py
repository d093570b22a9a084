"""SQL over topics and tables, as an operation: it waits for its turn, can be cancelled, and gives rows as text.

A query reads as the pipeline does, whoever asks: what the pipeline may read, it may. So it is for administrators, who alone see what was
asked and what came of it.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call, SqlOrder
from headrace.admin.api.operations import OperationView, Progress, Sight
from headrace.admin.rights import Operation

KIND: Final = "sql"
KEPT_MAX: Final = 50
"""Queries that are remembered, each with up to a mebibyte of rows."""


class RunSql(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=20_000)]
    """One query of Spark SQL that reads: a topic is the view `topic.orders`, a table `silver.orders`, both in backticks."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Rows that are given at most; the result says whether there were more."""


async def run_sql(request: RunSql, call: Call) -> OperationView:
    call.parts.queries.require_room()
    order = SqlOrder(query=request.query, limit=request.limit)

    async def work(progress: Progress) -> msgspec.Raw:
        return await call.parts.queries.run(order, progress)

    return call.parts.operations.start(
        KIND,
        request.query,
        work,
        sight=Sight(Operation.ALTER),
        author=call.principal.name,
        kept_max=KEPT_MAX,
    )
