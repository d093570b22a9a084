"""A stopped node's storage, opened for a command: metastore, log and tier, no doors, nothing in the background.

Takes the data directory's lock, so it cannot run beside the node; and registers anew, so a node that is somehow still
alive elsewhere is fenced.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from headrace.blob.credentials import require_credentials
from headrace.blob.metrics import BlobMetrics
from headrace.blob.open import bare_store, open_store
from headrace.blob.retrying import RetryingBlobStore
from headrace.blob.store import BlobStore
from headrace.broker.topics import Topics
from headrace.chance import SYSTEM_CHANCE
from headrace.clock import SystemClock
from headrace.config.identity import broker_id
from headrace.config.settings import NodeSettings
from headrace.control import values_pb2 as pb
from headrace.control.cluster import Cluster
from headrace.control.metastore import Metastore
from headrace.errors import HeadraceError, NotFound, ObjectNotFound
from headrace.log.store import LogStore
from headrace.node.data_dir import DataDir
from headrace.node.lead import Lead, check_name, former_name
from headrace.node.metastore import METASTORE_FILE, open_metastore
from headrace.telemetry.problems import Problems
from headrace.tier.format.keys import CLUSTER_MARKER
from headrace.tier.inventory import cluster_of
from headrace.tier.plans import Author
from headrace.tier.service import Tier


@asynccontextmanager
async def opened_bucket(settings: NodeSettings) -> AsyncIterator[BlobStore]:
    """The configured object store, to read. Needs no lock, for what is in it does not change, and no right to write."""
    clock = SystemClock()
    blobs = RetryingBlobStore(
        bare_store(settings.object_store, clock),
        settings.object_store,
        clock=clock,
        metrics=BlobMetrics(),
        chance=SYSTEM_CHANCE.random,
    )
    try:
        await require_credentials(settings.object_store)
        await _require_log(blobs, settings.object_store.address)
        yield blobs
    finally:
        await blobs.close()


async def _require_log(blobs: BlobStore, address: str) -> None:
    try:
        await cluster_of(blobs)
    except ObjectNotFound as error:
        raise NotFound(f"no log in object store {address}: {CLUSTER_MARKER} is not there") from error


@asynccontextmanager
async def opened_metastore(settings: NodeSettings, *, is_new: bool = False) -> AsyncIterator[Metastore]:
    """`is_new` when it is about to take the place of one that was lost."""
    async with AsyncExitStack() as parts:
        data_dir = DataDir(Path(settings.server.data_dir))
        data_dir.open()
        parts.callback(data_dir.close)
        metastore = await open_metastore(settings, clock=SystemClock(), is_new=is_new)
        parts.push_async_callback(metastore.close)
        yield metastore


@asynccontextmanager
async def opened_tier(settings: NodeSettings) -> AsyncIterator[Tier]:
    """The tier of a stopped node, loaded; its tasks do not run."""
    directory = Path(settings.server.data_dir)
    if not (directory / METASTORE_FILE).exists():
        raise NotFound(f"no node has kept its data in {directory}: {METASTORE_FILE} is not there")
    clock = SystemClock()
    async with opened_metastore(settings) as metastore, AsyncExitStack() as parts:
        blobs = await open_store(settings.object_store, clock=clock, metrics=BlobMetrics())
        parts.push_async_callback(blobs.close)
        cluster = await Cluster.load(metastore, clock)
        name = broker_id(settings.server, former=former_name(cluster))
        check_name(name, cluster)
        registered = await cluster.register(name, pb.BrokerRegistration(host="localhost"))
        logs = LogStore(settings.log, data_dir=directory, on_fault=_raise)
        topics = Topics(cluster, logs, defaults=settings.topic_defaults.as_topic_config())
        topics.load()
        problems = Problems()
        tier = Tier(
            settings.tier,
            blobs=blobs,
            cluster=cluster,
            logs=logs,
            clock=clock,
            author=Author(name, registered.numeric_id, registered.broker_epoch),
            on_fault=_raise,
            problems=problems,
        )
        await tier.load()
        logs.recover()
        lead = Lead(name, cluster=cluster, store=logs, topics=topics, clock=clock, problems=problems)
        await lead.take()
        logs.start()
        try:
            await lead.close_gaps()
            await tier.states.restore(is_ring_lost=lead.is_ring_lost)
            await lead.settle()
            yield tier
            await tier.ledger.write_pending()
        finally:
            await tier.stop()
            await logs.stop()
            await lead.leave()


def _raise(error: HeadraceError) -> None:
    raise error
