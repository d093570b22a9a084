"""What a node has besides as one of several brokers: it opens and gives up partitions, takes over WALs, and calls its neighbours.

Stopped with the node: whatever is started here is pushed on the node's own stack, in the order in which it was started.
"""

import asyncio
import functools
from collections.abc import Callable
from contextlib import AsyncExitStack

from headrace.broker.adopting import Adopting
from headrace.broker.coordinators import Coordinators
from headrace.broker.groups.standings import Standings
from headrace.broker.handing_over import HandingOver
from headrace.broker.leadership import Leadership, first_of
from headrace.broker.neighbours import Neighbours
from headrace.broker.peers.service import PeerService
from headrace.broker.services import Broker
from headrace.broker.shared_topics import SharedTopics
from headrace.broker.wal_opening import WalOpening
from headrace.control.cluster import Cluster
from headrace.control.settings import ControlSettings
from headrace.control.takeovers import Takeovers
from headrace.control.values_pb2 import BrokerRegistration
from headrace.errors import HeadraceError
from headrace.link.party import Party
from headrace.log.foreign import ForeignWal
from headrace.log.store import LogStore
from headrace.node.parts import NodeParts
from headrace.node.peering import build_link
from headrace.tier.service import Tier


class Sharing:
    def __init__(
        self,
        cluster: Cluster,
        topics: SharedTopics,
        *,
        store: LogStore,
        tier: Tier,
        own: Party,
        parts: NodeParts,
        running: AsyncExitStack,
        on_fault: Callable[[HeadraceError], None],
    ) -> None:
        """After what this broker still leads from an earlier life was read from its WAL. All else it opens as if it had been another's."""
        self._cluster = cluster
        self._topics = topics
        self._own = own
        self._parts = parts
        self._running = running
        self._on_fault = on_fault
        self.handing_over = HandingOver(cluster, topics, store, upload=tier.uploader.upload_round)
        self._leadership = Leadership(
            cluster,
            topics,
            learn=tier.learn,
            adopt=tier.adopt,
            wal=WalOpening(cluster, topics, store, clock=parts.clock),
            forget=tier.forget_partition,
            on_fault=on_fault,
        )
        self._adopting = Adopting(
            cluster,
            topics,
            store,
            own_name=own.broker,
            takeovers=Takeovers(cluster.store),
            open_wal=functools.partial(ForeignWal, disk=parts.disk, clock=parts.clock),
            learn=tier.learn,
            adopt=tier.adopt,
            forget=tier.forget_partition,
            clock=parts.clock,
        )
        running.push_async_callback(self._leadership.stop)
        self._neighbours = Neighbours(own.broker, lambda: cluster.members, on_changed=topics.members_changed)
        if parts.watches_neighbours:
            running.push_async_callback(_ended, asyncio.ensure_future(self._neighbours.run()))

    def is_gone(self, name: str) -> bool:
        """Whether that broker's process has ended, as far as a neighbour can tell."""
        return self._neighbours.is_gone(name)

    def left(self) -> dict[str, BrokerRegistration]:
        """The brokers that served a moment ago."""
        return self._neighbours.left()

    async def open_link(self, settings: ControlSettings, broker: Broker, coordinators: Coordinators) -> tuple[str, int]:
        """Before anything is led here: what is, others may have to be asked about, and may ask. Gives its address."""
        standings = Standings(broker.topics, broker.offsets, broker.clock)
        service = PeerService(broker, coordinators.markers, standings)
        link = build_link(settings, self._cluster, service, own=self._own, chance=self._parts.chance)
        broker.metrics.register(link.metrics)
        self._running.push_async_callback(link.stop)
        host, _, port = settings.listen_peer.rpartition(":")
        address = await link.start(host.strip("[]"), int(port))
        self._topics.on_members_changed.append(link.members_changed)
        coordinators.follow(self._topics, link)
        return address

    async def start(self) -> None:
        """Lead what the cluster says."""
        await self._leadership.start()
        self._running.push_async_callback(_ended, asyncio.ensure_future(self._adopt_wals()))

    async def _adopt_wals(self) -> None:
        try:
            await self._adopting.run()
        except* HeadraceError as group:
            self._on_fault(first_of(group))


async def _ended(task: "asyncio.Future[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
