"""A stopped node's storage, opened for a command: metastore, log and tier, no doors, nothing in the background.

Takes the data directory's lock, so it cannot run beside the node; and registers anew, so a node that is somehow still
alive elsewhere is fenced.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import open_store
from headrace.blob.store import BlobStore
from headrace.broker.topics import Topics
from headrace.clock import SystemClock
from headrace.config.identity import broker_id
from headrace.config.settings import NodeSettings
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Metastore
from headrace.errors import HeadraceError
from headrace.log.store import LogStore
from headrace.node.data_dir import DataDir
from headrace.node.node import METASTORE_FILE
from headrace.tier.plans import Author
from headrace.tier.service import Tier


@asynccontextmanager
async def opened_bucket(settings: NodeSettings) -> AsyncIterator[BlobStore]:
    """The configured object store. Needs no lock: what is in it does not change."""
    blobs = await open_store(settings.object_store, clock=SystemClock(), metrics=BlobMetrics())
    try:
        yield blobs
    finally:
        await blobs.close()


@asynccontextmanager
async def opened_metastore(settings: NodeSettings) -> AsyncIterator[Metastore]:
    async with AsyncExitStack() as parts:
        data_dir = DataDir(Path(settings.server.data_dir))
        data_dir.open()
        parts.callback(data_dir.close)
        metastore = await EmbeddedMetastore.open(data_dir.path / METASTORE_FILE, clock=SystemClock())
        parts.push_async_callback(metastore.close)
        yield metastore


@asynccontextmanager
async def opened_tier(settings: NodeSettings) -> AsyncIterator[Tier]:
    """The tier of a stopped node, loaded; its tasks do not run."""
    async with opened_bucket(settings) as blobs, opened_metastore(settings) as metastore:
        clock = SystemClock()
        cluster = await Cluster.load(metastore, clock)
        name = broker_id(settings.server)
        registered = await cluster.register(name, pb.BrokerRegistration(host="localhost"))
        logs = LogStore(settings.log, data_dir=Path(settings.server.data_dir), on_fault=_raise)
        topics = Topics(cluster, logs, defaults=settings.topic_defaults.as_topic_config())
        topics.load()
        tier = Tier(
            settings.tier,
            blobs=blobs,
            cluster=cluster,
            logs=logs,
            clock=clock,
            author=Author(name, registered.numeric_id, registered.broker_epoch),
            on_fault=_raise,
        )
        await tier.load()
        logs.recover()
        await cluster.raise_leader_epochs()
        topics.refresh_epochs()
        logs.start()
        try:
            yield tier
            await tier.ledger.write_pending()
        finally:
            await tier.stop()
            await logs.stop()


def _raise(error: HeadraceError) -> None:
    raise error
