"""Where headrace differs from Apache Kafka on purpose: the list in `docs/protocols/kafka.md`, as a program can read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.same_as_kafka.pairing import Difference, Plain

Covers = Callable[[Difference, Any], bool]


@dataclass(frozen=True, slots=True)
class Known:
    row: str
    """How its row in the documentation begins."""
    covers: Covers
    """Told of the difference and of the request."""


def _field(request: str, path_end: str, ours: Any = ..., theirs: Any = ...) -> Covers:
    def covers(found: Difference, _: Any) -> bool:
        is_here = found.request == request and found.path.endswith(path_end)
        return is_here and ours in (..., found.ours) and theirs in (..., found.theirs)

    return covers


def _configs(found: Difference, _: Any) -> bool:
    """Configs that one of the brokers alone has; those of both are compared."""
    if not found.path.endswith("configs") or not isinstance(found.ours, list) or not isinstance(found.theirs, list):
        return False
    return _common(found.ours, found.theirs) == _common(found.theirs, found.ours)


def _common(rows: list[Plain], others: list[Plain]) -> list[Plain]:
    names = {row["name"] for row in others} - {"min.insync.replicas"}
    return [row for row in rows if row["name"] in names]


def _min_insync(found: Difference, _: Any) -> bool:
    return found.theirs == 3 and found.path.endswith("config_source")


def _nameless_group(found: Difference, request: Any) -> bool:
    names = [
        getattr(request, "group_id", None),
        *(getattr(request, "groups", None) or ()),
        *getattr(request, "groups_names", ()),
    ]
    return "" in names and found.path.endswith(("error_code", "group_state", "groups"))


def _by_time(found: Difference, request: Any) -> bool:
    if found.request != "ListOffsets":
        return False
    is_asked = any(
        row.timestamp >= 0 for topic in getattr(request, "topics", ()) for row in getattr(topic, "partitions", ())
    )
    return found.request == "ListOffsets" and found.path.endswith("offset") and is_asked


KNOWN: Final = (
    Known("EndTxn without any partition added", _field("EndTxn", "error_code", ours=0, theirs=48)),
    Known("broker configs", _field("DescribeConfigs", "configs", ours=[])),
    Known("broker configs", _field("AlterConfigs", "error_code", ours=40, theirs=42)),
    Known("broker configs", _field("IncrementalAlterConfigs", "error_code", ours=40, theirs=42)),
    Known("configs of a group", _configs),
    Known("configs of a group", _field("DescribeConfigs", "synonyms")),
    Known("`min.insync.replicas` of a topic, in DescribeConfigs", _min_insync),
    Known("DescribeLogDirs", _field("DescribeLogDirs", "results")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "assignment.topic_partitions")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "group_state")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "assignment")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "assignment.topic_partitions")),
    Known("assignments of KIP-848 groups", _field("ListGroups", "groups")),
    Known("`cleanup.policy` without a word in it", lambda found, _: (found.ours, found.theirs) == (40, 0)),
    Known("assignments of KIP-848 groups", _field("ListGroups", "group_state")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "topic_id")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "partitions")),
    Known("LeaveGroup of a KIP-848 member", _field("LeaveGroup", "error_code", ours=25, theirs=0)),
    Known("a refused batch", _field("Produce", "log_start_offset", ours=-1)),
    Known("a refused batch", _field("Produce", "record_errors", ours=[])),
    Known("a transactional batch without a transactional id", _field("Produce", "error_code", theirs=53)),
    Known("zstd before Produce v7", _field("Produce", "error_code", ours=76, theirs=-1)),
    Known("topic id zero in Fetch", _field("Fetch", "error_code", ours=0, theirs=-1)),
    Known("topic id zero in Fetch", _field("Fetch", "responses", theirs=[])),
    Known("a request that is wrong in several ways", _field("Produce", "error_code", ours=21)),
    Known("a request that is wrong in several ways", _field("AlterConfigs", "error_code", ours=3)),
    Known("a request that is wrong in several ways", _field("IncrementalAlterConfigs", "error_code", ours=3)),
    Known("empty group id", _field("DeleteGroups", "error_code", ours=24, theirs=69)),
    Known("CreateTopics for show", _field("CreateTopics", "topic_id", ours="00" * 16)),
    Known("empty group id", _nameless_group),
    Known("broker configs", _field("AlterConfigs", "error_code", ours=0, theirs=40)),
    Known("ListOffsets by time", _by_time),
)


def known_as(found: Difference, request: Any) -> str | None:
    """The row that a difference belongs to; None for one that should not be."""
    return next((known.row for known in KNOWN if known.covers(found, request)), None)
