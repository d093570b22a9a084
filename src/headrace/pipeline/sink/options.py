"""The options of the sink, named as those of Spark's Kafka sink where it has them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.errors import suggest
from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.source.options import refuse_secrets
from headrace.pipeline.source.security import BrokerSecurity, is_security, parse_security

BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""Rows of one micro-batch that may wait on the driver: one transaction has one producer, and that is where it is."""


_KNOWN: Final = frozenset(
    {"kafka.bootstrap.servers", "topic", "markertopic", "applicationid", "batchbytesmax", "checkpointlocation"}
)
_IGNORED: Final = frozenset({"path", "includeheaders", "queryname"})
"""Of Spark and of its Kafka sink; they change nothing here. Headers go out where there is a column of that name."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    brokers: str
    topic: str | None
    """Where rows without a `topic` go."""
    marker_topic: str | None
    """The topic under which the application's last batch is remembered."""
    security: BrokerSecurity = BrokerSecurity()
    application_id: str | None
    """Names the stream to the brokers: consumer group of the marker, and transactional id."""
    batch_bytes_max: int = BATCH_BYTES_MAX


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    given = {name.lower(): value for name, value in options.items()}
    refuse_secrets(given)
    _refuse_unknown(given)
    if not given.get("kafka.bootstrap.servers"):
        raise InvalidOption("kafka.bootstrap.servers is missing")
    application_id = given.get("applicationid")
    marker_topic = given.get("markertopic") or given.get("topic")
    if is_stream and not application_id:
        raise InvalidOption("a stream needs applicationId, a name that stays the same over restarts")
    if is_stream and not marker_topic:
        raise InvalidOption("give topic, or markerTopic where rows name their own topics")
    bytes_max = given.get("batchbytesmax", str(BATCH_BYTES_MAX))
    if not bytes_max.isdigit() or not int(bytes_max):
        raise InvalidOption(f"batchBytesMax must be a whole number of at least 1, not {bytes_max!r}")
    return SinkOptions(
        brokers=given["kafka.bootstrap.servers"],
        security=parse_security(given),
        topic=given.get("topic"),
        marker_topic=marker_topic,
        application_id=application_id,
        batch_bytes_max=int(bytes_max),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _KNOWN or name in _IGNORED or is_security(name):
            continue
        if name.startswith("kafka."):
            raise InvalidOption(
                f"{name}: the sink sets up its producer itself; of Kafka's it takes kafka.bootstrap.servers and "
                "what it needs to be let in (kafka.security.protocol, kafka.sasl.*, kafka.ssl.*)"
            )
        raise InvalidOption(f"unknown option {name}{suggest(name, _KNOWN)}")
