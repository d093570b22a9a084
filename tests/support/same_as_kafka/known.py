"""Where headrace differs from Apache Kafka on purpose: the list in `docs/protocols/kafka.md`, as a program can read it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.same_as_kafka.configs import BROKER, GROUP, KINDS
from tests.support.same_as_kafka.pairing import NO_ID, SILENT, Difference, Plain

_LAST_UPLOADED: Final = -5
_PRODUCER_FENCED: Final = 90

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
    if found.path.endswith("synonyms"):
        return all(row["name"] == "min.insync.replicas" for row in found.theirs)
    return found.theirs == 3 and found.path.endswith("config_source")


def _nameless_group(found: Difference, request: Any) -> bool:
    is_listed = found.request == "OffsetFetch" and found.version >= 8
    names = [
        None if is_listed else getattr(request, "group_id", None),
        *(getattr(each, "group_id", each) for each in getattr(request, "groups", None) or ()),
        *getattr(request, "groups_names", ()),
    ]
    fields = ("error_code", "group_state", "groups", ".topics", "groups[].topics", "authorized_operations")
    return "" in names and found.path.endswith(fields)


def _by_time(found: Difference, request: Any) -> bool:
    if found.request != "ListOffsets":
        return False
    is_asked = any(
        row.timestamp >= 0 for topic in getattr(request, "topics", ()) for row in getattr(topic, "partitions", ())
    )
    return found.request == "ListOffsets" and found.path.endswith("offset") and is_asked


def _uploaded(found: Difference, request: Any) -> bool:
    if found.request != "ListOffsets" or not found.path.endswith("offset") or found.theirs != -1:
        return False
    return any(row.timestamp == _LAST_UPLOADED for topic in request.topics for row in topic.partitions)


def _aborted(found: Difference, _: Any) -> bool:
    """Kafka goes by its index, which may be far behind what it has read: all of ours are among theirs. It says null where the first
    batch does not fit beside the records of other partitions."""
    if found.request != "Fetch" or not found.path.endswith("aborted_transactions"):
        return False
    if found.theirs is None:
        return bool(found.ours == [])
    return isinstance(found.theirs, list) and all(each in found.theirs for each in found.ours or ())


def _rolled(found: Difference, _: Any) -> bool:
    """A topic with small segments: what Kafka answers with is the beginning of ours, and not nothing."""
    if found.request != "Fetch" or not found.path.endswith("records") or not found.theirs:
        return False
    return isinstance(found.ours, list) and found.ours[: len(found.theirs)] == found.theirs


def _fenced_by_coordinator(found: Difference, _: Any) -> bool:
    if found.request != "EndTxn" or found.version < 5:
        return False
    is_refused = found.path.endswith("error_code") and found.ours == _PRODUCER_FENCED and found.theirs in (0, 48)
    return is_refused or (found.path.endswith(("producer_id", "producer_epoch")) and found.ours == -1)


def _unknown_kinds(found: Difference, request: Any) -> bool:
    if found.request != "AlterConfigs" or found.theirs != SILENT:
        return False
    names = [each.resource_name for each in request.resources if each.resource_type not in KINDS]
    return len(set(names)) < len(names)


def _id_zero(found: Difference, request: Any) -> bool:
    if found.request != "Fetch" or all(topic.topic_id != NO_ID for topic in request.topics):
        return False
    is_whole = found.path == ".error_code" and found.theirs == -1
    return is_whole or (found.path == ".responses" and found.theirs == []) or found.path == ".session_id"


def _nameless_topic(found: Difference, request: Any) -> bool:
    return found.request == "DescribeTopicPartitions" and any(topic.name == "" for topic in request.topics)


def _neither_name_nor_id(found: Difference, request: Any) -> bool:
    return found.request == "Metadata" and any(
        topic.name is None and topic.topic_id == NO_ID for topic in request.topics or ()
    )


def _deleted_in_transaction(found: Difference, request: Any) -> bool:
    if found.request == "Fetch" and found.path.endswith("last_stable_offset"):
        return bool(0 <= found.theirs < found.ours)
    if found.request != "ListOffsets" or not found.path.endswith("offset") or not request.isolation_level:
        return False
    is_latest = any(row.timestamp == -1 for topic in request.topics for row in topic.partitions)
    return is_latest and found.theirs < found.ours


def _groups_by_state(found: Difference, _: Any) -> bool:
    """A state that one broker reaches later than the other decides whether its filter finds the group."""
    if found.request != "ListGroups" or not found.path.endswith("groups"):
        return False
    others = [[each for each in rows if "-consumer-" not in each["group_id"]] for rows in (found.ours, found.theirs)]
    return others[0] == others[1]


def _of_kind(resource_type: int, covers: Covers) -> Covers:
    def covers_both(found: Difference, request: Any) -> bool:
        return any(each.resource_type == resource_type for each in getattr(request, "resources", ())) and covers(
            found, request
        )

    return covers_both


KNOWN: Final = (
    Known("EndTxn without any partition added", _field("EndTxn", "error_code", ours=0, theirs=48)),
    Known("EndTxn v5 with the epoch before the present one", _fenced_by_coordinator),
    Known("Fetch, where the limits allow more", _rolled),
    Known("AlterConfigs for the same name in two kinds", _unknown_kinds),
    Known("broker configs", _of_kind(BROKER, _field("DescribeConfigs", "configs", ours=[]))),
    Known("broker configs", _of_kind(BROKER, _field("AlterConfigs", "error_code", ours=40, theirs=42))),
    Known("broker configs", _of_kind(BROKER, _field("IncrementalAlterConfigs", "error_code", ours=40, theirs=42))),
    Known("broker configs", _of_kind(BROKER, _field("IncrementalAlterConfigs", "error_code", ours=40, theirs=0))),
    Known("broker configs", _of_kind(BROKER, _field("AlterConfigs", "error_code", ours=40, theirs=0))),
    Known("configs of a group", _configs),
    Known("configs of a group", _of_kind(GROUP, _field("DescribeConfigs", "synonyms"))),
    Known("`min.insync.replicas` of a topic, in DescribeConfigs", _min_insync),
    Known("DescribeLogDirs", _field("DescribeLogDirs", "results")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "assignment.topic_partitions")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "partitions")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "partitions[]")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "topic_partitions[].topic_id")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "topic_partitions[].topic_name")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupDescribe", "group_state")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "assignment")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "assignment.topic_partitions")),
    Known("assignments of KIP-848 groups", _groups_by_state),
    Known("assignments of KIP-848 groups", _field("ListGroups", "group_state")),
    Known("assignments of KIP-848 groups", _field("OffsetDelete", "error_code", ours=86, theirs=0)),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "topic_id")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "partitions")),
    Known("assignments of KIP-848 groups", _field("ConsumerGroupHeartbeat", "partitions[]")),
    Known(
        "ConsumerGroupHeartbeat of a member that was away",
        _field("ConsumerGroupHeartbeat", "error_code", ours=25, theirs=69),
    ),
    Known("LeaveGroup of a KIP-848 member", _field("LeaveGroup", "error_code", ours=25, theirs=0)),
    Known("a refused batch", _field("Produce", "log_start_offset", ours=-1)),
    Known("a refused batch", _field("Produce", "record_errors", ours=[])),
    Known("a transactional batch without a transactional id", _field("Produce", "error_code", theirs=53)),
    Known("compression of an unknown kind", _field("Produce", "error_code", ours=76, theirs=-1)),
    Known("topic id zero in Fetch", _id_zero),
    Known("a topic without a name in DescribeTopicPartitions", _nameless_topic),
    Known("a topic with neither name nor id in Metadata", _neither_name_nor_id),
    Known("a request that is wrong in several ways", _field("Produce", "error_code", ours=21)),
    Known("a request that is wrong in several ways", _field("Produce", "error_code", ours=3, theirs=2)),
    Known(
        "a request that is wrong in several ways",
        _of_kind(GROUP, _field("IncrementalAlterConfigs", "error_code", ours=42, theirs=40)),
    ),
    Known("a request that is wrong in several ways", _field("AlterConfigs", "error_code", ours=3)),
    Known("a request that is wrong in several ways", _field("IncrementalAlterConfigs", "error_code", ours=3)),
    Known("empty group id", _field("DeleteGroups", "error_code", ours=24, theirs=69)),
    Known("CreateTopics for show", _field("CreateTopics", "topic_id", ours="00" * 16)),
    Known("empty group id", _nameless_group),
    Known("broker configs", _of_kind(BROKER, _field("AlterConfigs", "error_code", ours=0, theirs=40))),
    Known("ListOffsets by time", _by_time),
    Known("ListOffsets of what is uploaded", _uploaded),
    Known("records of an open transaction that were deleted", _deleted_in_transaction),
    Known("`aborted_transactions` in Fetch", _aborted),
)


def known_as(found: Difference, request: Any) -> str | None:
    """The row that a difference belongs to; None for one that should not be."""
    return next((known.row for known in KNOWN if known.covers(found, request)), None)
