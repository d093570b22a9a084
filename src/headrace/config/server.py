"""Settings of the node as a whole: who it is, where it keeps things, what it runs and how it talks about it."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who this node is and what it runs."""

    broker_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """This broker's name, unique in the cluster. Generated once and kept in `data.dir` when absent."""

    rack_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Where this broker stands. Placement spreads partitions over racks."""

    data_dir: Annotated[str, Meta(min_length=1)] = "data"
    """Directory of everything this node keeps. `wal.path` can put the WAL on a faster disk."""

    pipeline_enable: bool = True
    """Run the Spark pipeline beside the node. Without it the node starts faster and needs no Java."""
    pipeline_client_config: str | None = None
    """File of Kafka's client properties with which that pipeline logs in to the first listener of the Kafka door. Without one it
    takes the first listener that asks for nothing. Restart needed."""

    logging_level: Literal["debug", "info", "warning", "error"] = "info"
    """Quietest event that is written. `debug` costs time on every request."""

    logging_format: Literal["auto", "human", "json"] = "auto"
    """`auto` writes coloured lines on a terminal and JSON lines elsewhere."""
