"""Ids for idempotent producers, taken from the metastore a block at a time. None is ever given twice."""

import asyncio

from headrace.control.cluster import Cluster
from headrace.ids import ProducerId


class ProducerIds:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._block = iter(range(0))
        self._refill = asyncio.Lock()

    async def take(self) -> ProducerId:
        while True:
            for producer_id in self._block:
                return ProducerId(producer_id)
            async with self._refill:
                # Whoever waited for the lock finds the block that the one before it has taken.
                producer_id = next(self._block, -1)
                if producer_id >= 0:
                    return ProducerId(producer_id)
                self._block = iter(await self._cluster.take_producer_ids())
