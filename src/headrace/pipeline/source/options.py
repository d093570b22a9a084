"""The options of the source, named as those of Spark's Kafka source, checked once and turned into values.

Secrets are not options: Spark shows options in plans, logs and its web page. Credentials come from the environment of the
processes that read (`AWS_*` for the bucket) and from a file for brokers (`security.py`); options that look like secrets are refused.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from headrace.errors import suggest
from headrace.pipeline.decoder import Isolation
from headrace.pipeline.source.bucket import BucketAddress
from headrace.pipeline.source.errors import InvalidOption
from headrace.pipeline.source.offsets import EARLIEST, LATEST, TopicPartition, parse_places
from headrace.pipeline.source.security import FILE_OPTION, BrokerSecurity, parse_security

_IGNORED: Final = frozenset(
    {
        "path",
        "groupidprefix",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumer.polltimeoutms",
        "subscribe",
    }
)
"""Options of Spark's Kafka source that change nothing here, so that a notebook moves over by changing one word."""
_SECRET: Final = re.compile(r"secret|password|jaas|token|access_key|accesskey|credential", re.IGNORECASE)
_KNOWN: Final = frozenset(
    {
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "minpartitions",
        "cores",
        "maxrecordsperpartition",
        "failondataloss",
        "includeheaders",
        "isolation.level",
        "bucket",
        "bucket.endpoint",
        "bucket.region",
        "filterpushdown",
    }
)


TRIGGER_DELAY_MS_MAX: Final = 15 * 60_000
"""As in Spark's Kafka source."""
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_JSON_EXAMPLES: Final = {
    "assign": '{"orders": [0, 1]}',
    "startingoffsets": '{"orders": {"0": 23, "1": -2}}',
    "endingoffsets": '{"orders": {"0": 23, "1": -1}}',
    "startingoffsetsbytimestamp": '{"orders": {"0": 1772359200000}}',
    "endingoffsetsbytimestamp": '{"orders": {"0": 1772359200000}}',
}


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Which partitions: names, a pattern over all names, or named partitions. Exactly one is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None

    def matches(self, topic: str, *, is_internal: bool = False) -> bool:
        if self.pattern is not None:
            return not is_internal and re.fullmatch(self.pattern, topic) is not None
        return topic in (self.assigned if self.assigned is not None else self.topics)

    def takes(self, topic: str, partition: int) -> bool:
        return self.assigned is None or partition in self.assigned[topic]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics by name, or None when only a pattern says which."""
        if self.pattern is not None:
            return None
        return self.topics if self.assigned is None else tuple(self.assigned)


class MissingTime(Enum):
    """What to do when no record is as new as `startingTimestamp`."""

    FAIL = "error"
    START_AT_LATEST = "latest"


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """One end of what is read: the whole log's, given offsets, or times. Exactly one is given."""

    everywhere: int | None = None
    """EARLIEST or LATEST."""
    offsets: dict[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: dict[TopicPartition, int] | None = None
    missing_time: MissingTime = MissingTime.FAIL
    is_partial: bool = False
    """Whether partitions that are not named start at their beginning: a pattern may match more by now."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    subscription: Subscription
    starting: Bound
    ending: Bound
    brokers: tuple[tuple[str, int], ...] = ()
    security: BrokerSecurity = BrokerSecurity()
    bucket: BucketAddress | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    """A micro-batch waits for as many, and no longer than `trigger_delay_ms_max`."""
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_MAX
    cores: int | None = None
    """Tasks that run at the same time; by default as many as the driver's machine has cores."""
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    is_loss_fatal: bool = True
    has_headers: bool = False
    has_pushdown: bool = False


def parse_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Raises `InvalidOption` with the option's name for anything that cannot be meant."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    if is_stream:
        for name in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"):
            if name in given:
                raise InvalidOption(f"{name} has no meaning in a stream")
    most, least = parse_count(given, "maxoffsetspertrigger"), parse_count(given, "minoffsetspertrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOption(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
    brokers = _parse_brokers(given.get("kafka.bootstrap.servers", ""))
    bucket = _parse_bucket(given)
    if not brokers and bucket is None:
        raise InvalidOption("give kafka.bootstrap.servers, bucket, or both")
    return SourceOptions(
        subscription=_parse_subscription(given),
        starting=_parse_bound(given, "starting", default=LATEST if is_stream else EARLIEST, refused=None),
        ending=_parse_bound(given, "ending", default=LATEST, refused=EARLIEST),
        brokers=brokers,
        security=parse_security(given),
        bucket=bucket,
        isolation=_parse_isolation(given),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=_parse_duration(given, "maxtriggerdelay", default_ms=TRIGGER_DELAY_MS_MAX),
        cores=parse_count(given, "cores"),
        partitions_min=parse_count(given, "minpartitions"),
        records_per_partition_max=parse_count(given, "maxrecordsperpartition"),
        is_loss_fatal=parse_flag(given, "failondataloss", default=True),
        has_headers=parse_flag(given, "includeheaders", default=False),
        has_pushdown=parse_flag(given, "filterpushdown", default=False),
    )


def refuse_secrets(given: Mapping[str, str]) -> None:
    """Raises `InvalidOption` for options that look like secrets; the value is not repeated."""
    for name in given:
        if _SECRET.search(name):
            raise InvalidOption(
                f"{name} would put a secret where Spark shows it; set AWS_* in the environment for the bucket, and name a file of "
                f"Kafka's properties for brokers instead ({FILE_OPTION}, or HEADRACE_CLIENT_CONFIG in the environment)"
            )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    refuse_secrets(given)
    for name in given:
        if name not in _KNOWN and name not in _IGNORED and not name.startswith("kafka."):
            raise InvalidOption(f"unknown option {name}{suggest(name, _KNOWN)}")


def _parse_subscription(given: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(ways) != 1:
        raise InvalidOption("give exactly one of subscribe, subscribePattern and assign")
    match ways[0]:
        case "subscribe":
            topics = tuple(name.strip() for name in given["subscribe"].split(",") if name.strip())
            return Subscription(topics=topics)
        case "subscribepattern":
            try:
                re.compile(given["subscribepattern"])
            except re.error as error:
                raise InvalidOption(f"subscribePattern does not compile: {error}") from error
            return Subscription(pattern=given["subscribepattern"])
        case _:
            assigned = _parse_json(given, "assign")
            try:
                wanted = msgspec.convert(assigned, dict[str, tuple[int, ...]])
            except msgspec.ValidationError as error:
                raise InvalidOption(f'assign must look like {{"topic": [0, 1]}}: {error}') from error
            return Subscription(assigned=wanted)


def _parse_bound(given: Mapping[str, str], side: str, *, default: int, refused: int | None) -> Bound:
    """Times win over offsets, and one time for all over one per partition, as in Spark's Kafka source."""
    try:
        strategy = MissingTime(given.get("startingoffsetsbytimestampstrategy", "error").lower())
    except ValueError as error:
        raise InvalidOption("startingOffsetsByTimestampStrategy is error or latest") from error
    if (timestamp := parse_count(given, f"{side}timestamp", least=0)) is not None:
        return Bound(timestamp_ms=timestamp, missing_time=strategy)
    if f"{side}offsetsbytimestamp" in given:
        places = parse_places(_parse_json(given, f"{side}offsetsbytimestamp"))
        return Bound(timestamps_ms=places, missing_time=strategy)
    text = given.get(f"{side}offsets", "").strip()
    everywhere = {"": default, "earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if everywhere is not None:
        if everywhere == refused:
            raise InvalidOption(f"{side}Offsets cannot be {text}")
        return Bound(everywhere=everywhere)
    return Bound(
        offsets=parse_places(_parse_json(given, f"{side}offsets")), is_partial=bool(given.get("subscribepattern"))
    )


def _parse_brokers(text: str) -> tuple[tuple[str, int], ...]:
    brokers = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = address.rpartition(":")
        if not separator or not port.isdigit():
            raise InvalidOption(f"kafka.bootstrap.servers: {address!r} is not host:port")
        brokers.append((host.strip("[]"), int(port)))
    return tuple(brokers)


def _parse_bucket(given: Mapping[str, str]) -> BucketAddress | None:
    if not given.get("bucket"):
        return None
    return BucketAddress(url=given["bucket"], endpoint=given.get("bucket.endpoint"), region=given.get("bucket.region"))


def _parse_isolation(given: Mapping[str, str]) -> Isolation:
    text = given.get("isolation.level") or given.get("kafka.isolation.level") or "read_uncommitted"
    try:
        return Isolation(text.lower())
    except ValueError as error:
        raise InvalidOption(f"isolation.level {text!r} is neither read_committed nor read_uncommitted") from error


def parse_count(given: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    if name not in given:
        return None
    text = given[name].strip()
    if not text.isdigit() or int(text) < least:
        raise InvalidOption(f"{name} must be a whole number of at least {least}, not {text!r}")
    return int(text)


def _parse_duration(given: Mapping[str, str], name: str, *, default_ms: int) -> int:
    """As Spark writes them: `15m`, `90s`, or milliseconds without a unit."""
    if name not in given:
        return default_ms
    found = _DURATION.fullmatch(given[name].strip().lower())
    if found is None:
        raise InvalidOption(f"{name} is a time such as 15m or 90s, not {given[name]!r}")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def parse_flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name} is true or false, not {text!r}")
    return text == "true"


# JSON from a user may be anything; the callers check its shape.
def _parse_json(given: Mapping[str, str], name: str) -> Any:
    try:
        return msgspec.json.decode(given[name])
    except msgspec.DecodeError as error:
        expected = "earliest, latest or JSON" if name.endswith("offsets") else "JSON"
        raise InvalidOption(
            f"{name}: expected {expected} such as {_JSON_EXAMPLES[name]}, not {given[name]!r}"
        ) from error
