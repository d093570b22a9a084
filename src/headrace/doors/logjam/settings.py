"""The Logjam door's own settings."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LogjamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logjam's sockets, the rules for what comes in, and how much of it may wait."""

    listen_router: str = "0.0.0.0:9604"
    """Address of the ROUTER socket, for requests and messages of DEALERs. Restart needed."""
    listen_pull: str = "0.0.0.0:9605"
    """Address of the PULL socket, for messages of PUSHers. Restart needed."""
    listen_pub: str = "0.0.0.0:9606"
    """Address of the PUB socket, for subscribers. Restart needed."""
    listen_live: str = "0.0.0.0:9607"
    """Address of the PUB socket with the live stream of dashboards. Restart needed."""
    host: str | None = None
    """Host name given in answers to ping and in heartbeats. This machine's own when absent. Restart needed."""
    device_number: Annotated[int, Meta(ge=1, le=2**32 - 1)] = 1
    """This server's number as a device. Subscribers tell devices apart by it: give each server its own."""
    strict_names: bool = False
    """Allow only letters in app-env and topic, as the protocol's grammar does. Real applications need more."""
    reply_form: Literal["app-env", "empty", "status"] = "app-env"
    """What stands before the status in a reply. Old agents may need `empty`; the grammar says `status`."""
    accept_three_frames: bool = False
    """Take messages without a meta frame on PULL, as real devices do. They have no number, so losses go unseen."""
    receive_high_water_mark: Annotated[int, Meta(ge=1)] = 100_000
    """Messages ZeroMQ queues per client before it stops reading from it."""
    send_high_water_mark: Annotated[int, Meta(ge=1)] = 1_000_000
    """Messages ZeroMQ queues per subscriber before it drops for that subscriber."""
    body_max_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 8 * 1024 * 1024
    """Largest body after decompression. What would be larger is dropped and counted."""
    waiting_max_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 64 * 1024 * 1024
    """Bytes that may wait for a log that is full or a topic that is being made; more is dropped and counted."""
    streams_max: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    """Topics this door creates at most: names come from the network."""
    partitions: Annotated[int, Meta(ge=1, le=1_000)] = 1
    """Partitions of a topic this door creates. Requests are spread by request id; order holds within one."""
    heartbeat_interval_ms: Annotated[int, Meta(ge=10)] = 5_000
    """Pause between heartbeats on PUB. Subscribers expect the default."""
