"""The node's metastore: where its file and its mark lie, and what happens when something in it was damaged."""

from pathlib import Path
from typing import Final

from headrace.clock import Clock
from headrace.config.settings import NodeSettings
from headrace.control import keys
from headrace.control.embedded import EmbeddedMetastore
from headrace.control.metastore import Put
from headrace.control.revision_mark import FILE_NAME as MARK_FILE
from headrace.errors import Conflict
from headrace.log.wal.paths import wal_paths
from headrace.telemetry.logging import get_logger
from headrace.tier.plans import HOLD

METASTORE_FILE: Final = "metastore.sqlite"

log = get_logger(__name__)


async def open_metastore(settings: NodeSettings, *, clock: Clock, is_new: bool = False) -> EmbeddedMetastore:
    """Opened, checked, and held (nothing is collected) where a part of it had to be dropped."""
    directory = Path(settings.server.data_dir)
    beside_ring, _ = wal_paths(settings.log, directory)
    store = await EmbeddedMetastore.open(
        directory / METASTORE_FILE,
        clock=clock,
        mark=beside_ring / MARK_FILE,
        is_new=is_new,
        expendable=keys.EXPENDABLE,
    )
    if store.damaged:
        log.error("damaged entries of the metastore were dropped; nothing is collected", keys=store.damaged)
        await store.txn((), (Put(HOLD, b"damaged"),))
    return store


def require_no_metastore(directory: Path) -> None:
    """`Conflict` in the directory of a node that was alone: its records may be in its WAL, which a broker of several does without."""
    if (directory / METASTORE_FILE).exists():
        raise Conflict(
            f"{directory / METASTORE_FILE} is that of a node that ran alone, and its WAL may have records that nothing else has: "
            "give the broker of a cluster another data.dir"
        )
