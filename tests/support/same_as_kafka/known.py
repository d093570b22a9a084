"""Where headrace differs from Apache Kafka on purpose: the list in `docs/protocols/kafka.md`, as a program can read it.

An entry is as narrow as can be told: by the row of the answer, by what the request asked for in that row, and by what Kafka
says of the state that the request has met (`Evidence`). Whatever is wider hides a fault one day.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.support.same_as_kafka.batches import is_absurd
from tests.support.same_as_kafka.configs import BROKER, GROUP, KINDS, TOPIC
from tests.support.same_as_kafka.evidence import Evidence, is_broken, is_packed_in_an_unknown_way, is_transactional
from tests.support.same_as_kafka.pairing import CLOSED, NO_ID, SILENT, Difference

from headrace.wire.kafka.fetch import TOPIC_ID_FROM

_LAST_UPLOADED: Final = -5
_LATEST: Final = -1
OWN_CONFIGS: Final = frozenset(
    (
        "durability",
        "value.schema",
        "value.schema.message",
        "value.schema.type",
        "wasm.dead.letter.topic",
        "wasm.module.id",
    )
)
_MIN_INSYNC: Final = "min.insync.replicas"
_ACKS_THAT_DO_NOT_EXIST: Final = 7

Covers = Callable[[Difference, Evidence], bool]


@dataclass(frozen=True, slots=True)
class Known:
    row: str
    """How its row in the documentation begins."""
    covers: Covers


def known_as(found: Difference, evidence: Evidence) -> str | None:
    """The row that a difference belongs to; None for one that should not be."""
    return next((known.row for known in KNOWN if known.covers(found, evidence)), None)


def _field(request: str, path_end: str, ours: Any = ..., theirs: Any = ...) -> Covers:
    def covers(found: Difference, _: Evidence) -> bool:
        is_here = found.request == request and found.path.endswith(path_end)
        return is_here and ours in (..., found.ours) and theirs in (..., found.theirs)

    return covers


def _where(holds: Callable[[Difference, Evidence], bool], covers: Covers) -> Covers:
    return lambda found, evidence: covers(found, evidence) and holds(found, evidence)


# -- transactions


def _ends_nothing(found: Difference, evidence: Evidence) -> bool:
    if found.request != "EndTxn" or found.version >= 5 or evidence.before.transaction.transaction_state != "Empty":
        return False
    return found.path.endswith("error_code") and (found.ours, found.theirs) == (0, 48)


def _fenced_by_successor(found: Difference, evidence: Evidence) -> bool:
    """The epoch is the one before the present one, which has ended a transaction without being raised."""
    if found.request != "EndTxn" or found.version < 5 or found.row["error_code"] != 90:
        return False
    asked, held = evidence.request, evidence.before.transaction
    outcomes = {"CompleteCommit": True, "CompleteAbort": False}
    if (
        held.transaction_state not in outcomes
        or getattr(asked.producer_epoch, "theirs", None) != held.producer_epoch - 1
    ):
        return False
    if found.path.endswith("error_code"):
        return bool(found.theirs == (0 if asked.committed == outcomes[held.transaction_state] else 48))
    return bool(found.ours == -1)


def _another_name(found: Difference, evidence: Evidence) -> bool:
    """The transactional id is another producer's or nobody's, and the epoch is one that the producer no longer has."""
    if found.request != "TxnOffsetCommit" or (found.ours, found.theirs) != (49, 47):
        return False
    asked, held = evidence.request.producer_id, evidence.before.transaction
    return bool(held.error_code or getattr(asked, "theirs", asked) != held.producer_id)


# -- reading


def _in_other_segment(found: Difference, evidence: Evidence) -> bool:
    """What Kafka answers with is the beginning of ours, and it ends there whatever the limits; ours is not more than was asked for."""
    if found.request != "Fetch" or not found.path.endswith("records") or not found.theirs:
        return False
    if not isinstance(found.ours, list) or found.ours[: len(found.theirs)] != found.theirs:
        return False
    size = sum(batch["size"] for batch in found.ours)
    rows = [row for topic in evidence.request.topics for row in topic.partitions]
    limits = [row.partition_max_bytes for row in rows if row.partition == found.place["partition_index"]]
    # A session remembers what was asked for in requests before.
    is_within = size <= min(max(limits, default=1 << 20), evidence.request.max_bytes)
    first, last = found.theirs[0], found.theirs[-1]
    return is_within and evidence.ends_with_segment(found.place, first["base_offset"], last["end_offset"])


def _aborted(found: Difference, _: Evidence) -> bool:
    """Those that ours does not name begin behind the records; null comes with no records."""
    if found.request != "Fetch" or not found.path.endswith("aborted_transactions"):
        return False
    if found.theirs is None:
        return found.ours == [] and not found.row["records"]
    if not isinstance(found.theirs, list) or not isinstance(found.ours, list):
        return False
    end = max((batch["end_offset"] for batch in found.row["records"]), default=-1)
    others = [each for each in found.theirs if each not in found.ours]
    return all(each in found.theirs for each in found.ours) and all(each["first_offset"] >= end for each in others)


def _by_time(found: Difference, evidence: Evidence) -> bool:
    if found.request != "ListOffsets" or not found.path.endswith(".offset"):
        return False
    asked = evidence.time_asked(found.place)
    is_later = found.ours == -1 or found.ours > found.theirs
    return asked is not None and asked >= 0 and is_later and evidence.is_marker(found.place, found.theirs)


def _uploaded(found: Difference, evidence: Evidence) -> bool:
    is_here = found.request == "ListOffsets" and found.path.endswith(".offset") and found.theirs == -1
    return is_here and evidence.time_asked(found.place) == _LAST_UPLOADED


def _deleted_in_transaction(found: Difference, evidence: Evidence) -> bool:
    """Ours is where the log starts; theirs is below it, where a transaction began that is open."""
    if found.request == "ListOffsets" and found.path.endswith(".offset"):
        is_stable_end = evidence.request.isolation_level == 1 and evidence.time_asked(found.place) == _LATEST
    else:
        is_stable_end = found.request == "Fetch" and found.path.endswith("last_stable_offset")
    if not is_stable_end or not 0 <= found.theirs < found.ours == evidence.log_start(found.place):
        return False
    return found.theirs in evidence.open_transactions(found.place)


def _id_zero(found: Difference, evidence: Evidence) -> bool:
    """In the request, or in the session that it goes on with: then our answer has a row of it."""
    if found.request != "Fetch" or evidence.version < TOPIC_ID_FROM:
        return False
    is_asked_for = any(topic.topic_id == NO_ID for topic in evidence.request.topics)
    if found.path == "":
        return is_asked_for and evidence.request.session_epoch > 0 and bool(found.theirs == SILENT)
    is_in_session = any(topic["topic_id"] == NO_ID.hex() for topic in found.row.get("responses", ()))
    if not is_asked_for and not is_in_session:
        return False
    is_whole = found.path == ".error_code" and (found.ours, found.theirs) == (0, -1)
    return is_whole or (found.path == ".responses" and found.theirs == []) or found.path == ".session_id"


def _deleted_in_session(found: Difference, evidence: Evidence) -> bool:
    """A session that knows the topic by id goes on after the topic was deleted."""
    if found.request != "Fetch" or evidence.version < TOPIC_ID_FROM or evidence.request.session_epoch <= 0:
        return False
    if not found.path.endswith("partitions[].error_code") or (found.ours, found.theirs) not in ((100, 3), (100, 29)):
        return False
    return evidence.is_deleted(found.place)


# -- writing


def _refused_batch(found: Difference, _: Evidence) -> bool:
    if found.request != "Produce" or not found.row.get("error_code"):
        return False
    return (found.path.endswith("log_start_offset") and found.ours == -1) or (
        found.path.endswith("record_errors") and found.ours == []
    )


def _without_transactional_id(found: Difference, evidence: Evidence) -> bool:
    is_here = found.request == "Produce" and found.path.endswith("error_code") and found.theirs == 53
    return is_here and evidence.request.transactional_id is None and is_transactional(evidence.batch_sent(found.place))


def _unknown_compression(found: Difference, evidence: Evidence) -> bool:
    is_here = found.request == "Produce" and (found.ours, found.theirs) == (76, -1)
    return is_here and is_packed_in_an_unknown_way(evidence.batch_sent(found.place))


def _wrong_acks_and_more(found: Difference, evidence: Evidence) -> bool:
    is_here = found.request == "Produce" and found.path.endswith("error_code") and found.ours == 21
    return is_here and found.theirs != 0 and evidence.request.acks == _ACKS_THAT_DO_NOT_EXIST


def _late_without_key(found: Difference, evidence: Evidence) -> bool:
    """A whole batch with a wrong time for a compacted topic, and without a key: that is what Kafka looks at first."""
    is_here = found.request == "Produce" and (found.ours, found.theirs) == (32, 87)
    return is_here and not is_broken(evidence.batch_sent(found.place))


def _absurd_for_nobody(found: Difference, evidence: Evidence) -> bool:
    """Kafka looks at the batches of a request before it asks who may write them."""
    is_here = found.request == "Produce" and (found.ours, found.theirs) == (29, 2)
    return is_here and is_absurd(evidence.batch_sent(found.place))


def _broken_for_nobody(found: Difference, evidence: Evidence) -> bool:
    is_here = found.request == "Produce" and (found.ours, found.theirs) == (3, 2)
    return is_here and is_broken(evidence.batch_sent(found.place))


# -- topics, groups, configs


def _nameless_topic(found: Difference, evidence: Evidence) -> bool:
    """Kafka fails as a whole, and so for every topic; ours is right for the others."""
    if found.request != "DescribeTopicPartitions" or all(topic.name != "" for topic in evidence.request.topics):
        return False
    return _failed_for_all(found)


def _neither_name_nor_id(found: Difference, evidence: Evidence) -> bool:
    if found.request != "Metadata":
        return False
    is_asked_for = any(topic.name is None and topic.topic_id == NO_ID for topic in evidence.request.topics or ())
    return is_asked_for and _failed_for_all(found)


def _failed_for_all(found: Difference) -> bool:
    """Kafka says UNKNOWN_SERVER_ERROR of this topic, and nothing else of it, or names it otherwise."""
    if found.path.endswith("error_code"):
        return bool(found.theirs == -1)
    if found.path in (".brokers", ".controller_id"):
        return found.theirs in ([], -1)
    return found.path.startswith(".topics")


def _nameless_group(found: Difference, evidence: Evidence) -> bool:
    request = evidence.request
    is_listed = found.request == "OffsetFetch" and found.version >= 8
    names = [
        None if is_listed else getattr(request, "group_id", None),
        *(getattr(each, "group_id", each) for each in getattr(request, "groups", None) or ()),
        *getattr(request, "groups_names", ()),
    ]
    fields = ("error_code", "group_state", "groups", ".topics", "groups[].topics", "authorized_operations")
    # Kafka has what an old client committed.
    committed = ("committed_offset", "metadata") if found.request == "OffsetFetch" else ()
    return "" in names and found.place.get("group_id", "") == "" and found.path.endswith(fields + committed)


def _of_consumer_group(found: Difference, _: Evidence) -> bool:
    return "-consumer-" in found.place.get("group_id", "")


def _listed_by_state(found: Difference, evidence: Evidence) -> bool:
    """A state that one broker reaches later than the other decides whether its filter finds the group."""
    if found.request != "ListGroups" or not evidence.request.states_filter:
        return False
    if found.path.endswith("groups[].group_id"):
        return "-consumer-" in found.ours and "-consumer-" in found.theirs
    if not found.path.endswith("groups"):
        return False
    others = [[each for each in rows if "-consumer-" not in each["group_id"]] for rows in (found.ours, found.theirs)]
    return others[0] == others[1]


def _read_by_pattern(found: Difference, evidence: Evidence) -> bool:
    """Kafka does not know yet that the pattern of a member finds this topic: nobody has any of it, or is to have."""
    if found.request != "OffsetDelete" or (found.ours, found.theirs) != (86, 0):
        return False
    topic, members = evidence.topic(found.place), evidence.before.group.members
    assigned = [rows for each in members for rows in (each.assignment, each.target_assignment)]
    is_known = any(row.topic_name == topic for rows in assigned for row in rows.topic_partitions)
    patterns = [each.subscribed_topic_regex for each in members if each.subscribed_topic_regex]
    return not is_known and any(re.fullmatch(pattern, topic) for pattern in patterns)


def _of_kind(resource_type: int, covers: Covers) -> Covers:
    return _where(lambda found, _: found.place.get("resource_type") == resource_type, covers)


def _configs_of_groups_elsewhere(found: Difference, _: Evidence) -> bool:
    """Kafka has more of them; ours are among them as they are."""
    if found.request != "DescribeConfigs" or not found.path.endswith("configs"):
        return False
    return all(row in found.theirs for row in found.ours) and len(found.ours) < len(found.theirs)


def _own_config(found: Difference, _: Evidence) -> bool:
    if found.request not in ("DescribeConfigs", "CreateTopics") or not found.path.endswith("configs"):
        return False
    ours, theirs = ([row for row in rows if row["name"] != _MIN_INSYNC] for rows in (found.ours, found.theirs))
    return [row for row in ours if row["name"] not in OWN_CONFIGS] == theirs


def _min_insync(found: Difference, _: Evidence) -> bool:
    if found.place.get("name") != _MIN_INSYNC:
        return False
    return found.path.endswith("synonyms") or (found.theirs == 3 and found.path.endswith("config_source"))


def _both_directories(found: Difference, _: Evidence) -> bool:
    """Two rows for the one of Kafka, each with the same partitions as that; coordinators' topics come when they are needed."""
    if found.request != "DescribeLogDirs" or found.path != ".results":
        return False
    ours, theirs = (
        [row | {"topics": [each for each in row["topics"] if not each["name"].startswith("__")]} for row in rows]
        for rows in (found.ours, found.theirs)
    )
    return len(theirs) == 1 and ours == theirs * 2


def _rule_of_no_sense(found: Difference, evidence: Evidence) -> bool:
    """One rule or filter, which we refuse and which Kafka does not take either."""
    if found.request not in ("CreateAcls", "DescribeAcls", "DeleteAcls"):
        return False
    if found.theirs == CLOSED:
        return any(f"'error_code': {code}" in repr(found.ours) for code in (42, 31))
    words = (9, 99)
    is_unknown = evidence.request.operation in words if found.request == "DescribeAcls" else found.theirs == -1
    return found.path.endswith("error_code") and found.ours == 42 and bool(is_unknown)


def _unknown_kinds(found: Difference, evidence: Evidence) -> bool:
    if found.request != "AlterConfigs" or found.theirs != SILENT:
        return False
    names = [each.resource_name for each in evidence.request.resources if each.resource_type not in KINDS]
    return len(set(names)) < len(names)


def _changes_of_broker(request: str) -> Covers:
    """Kafka changes what it can, and refuses names, values and brokers that are not there: the latter before it asks for rights."""
    return _of_kind(
        BROKER,
        lambda found, _: (
            found.request == request
            and found.path.endswith("error_code")
            and (found.ours, found.theirs) in ((40, 42), (40, 0), (31, 40))
        ),
    )


def _no_defaults(found: Difference, evidence: Evidence) -> bool:
    """AlterConfigs takes all defaults of brokers away: we have none, and Kafka keeps `min.insync.replicas`."""
    is_here = found.request == "AlterConfigs" and (found.ours, found.theirs) == (0, 40)
    return is_here and any(
        (each.resource_type, each.resource_name, each.configs) == (BROKER, "", [])
        for each in evidence.request.resources
    )


def _unknown_and_wrong(request: str) -> Covers:
    """A topic that is not there, and a name, a config or an operation that cannot be."""
    return lambda found, _: (
        found.request == request
        and found.path.endswith("error_code")
        and found.ours == 3
        and found.theirs in (17, 40, 42)
    )


_ASSIGNMENTS: Final = "assignments of KIP-848 groups"
_SEVERAL: Final = "a request that is wrong in several ways"

KNOWN: Final = (
    Known("EndTxn without any partition added", _ends_nothing),
    Known("EndTxn v5 with the epoch before the present one", _fenced_by_successor),
    Known("Fetch, where the limits allow more", _in_other_segment),
    Known("AlterConfigs for the same name in two kinds", _unknown_kinds),
    Known("broker configs", _of_kind(BROKER, _field("DescribeConfigs", "configs", ours=[]))),
    Known("broker configs", _changes_of_broker("AlterConfigs")),
    Known("broker configs", _changes_of_broker("IncrementalAlterConfigs")),
    Known("broker configs", _of_kind(BROKER, _no_defaults)),
    Known("configs of a topic", _own_config),
    Known("configs of a group", _of_kind(GROUP, _configs_of_groups_elsewhere)),
    Known("configs of a group", _of_kind(GROUP, _field("DescribeConfigs", "synonyms"))),
    Known("`min.insync.replicas` of a topic, in DescribeConfigs", _of_kind(TOPIC, _min_insync)),
    Known("DescribeLogDirs", _both_directories),
    *(
        Known(_ASSIGNMENTS, _field("ConsumerGroupDescribe", path))
        for path in (
            "assignment.topic_partitions",
            "partitions",
            "partitions[]",
            "topic_partitions[].topic_id",
            "topic_partitions[].topic_name",
            "group_state",
        )
    ),
    *(
        Known(_ASSIGNMENTS, _field("ConsumerGroupHeartbeat", path))
        for path in ("assignment", "assignment.topic_partitions", "topic_id", "partitions", "partitions[]")
    ),
    Known(_ASSIGNMENTS, _listed_by_state),
    Known(_ASSIGNMENTS, _where(_of_consumer_group, _field("ListGroups", "group_state"))),
    Known(_ASSIGNMENTS, _read_by_pattern),
    Known(
        "ConsumerGroupHeartbeat of a member that was away",
        _field("ConsumerGroupHeartbeat", "error_code", ours=25, theirs=69),
    ),
    Known("LeaveGroup of a KIP-848 member", _field("LeaveGroup", "error_code", ours=25, theirs=0)),
    Known("a refused batch", _refused_batch),
    Known("a transactional batch without a transactional id", _without_transactional_id),
    Known("compression of an unknown kind", _unknown_compression),
    Known("an absurd batch", _absurd_for_nobody),
    Known("topic id zero in Fetch", _id_zero),
    Known("a topic deleted while a fetch session has it", _deleted_in_session),
    Known("a topic without a name in DescribeTopicPartitions", _nameless_topic),
    Known("a topic with neither name nor id in Metadata", _neither_name_nor_id),
    Known(_SEVERAL, _another_name),
    Known(_SEVERAL, _wrong_acks_and_more),
    Known(_SEVERAL, _broken_for_nobody),
    Known(_SEVERAL, _late_without_key),
    Known(_SEVERAL, _of_kind(GROUP, _field("IncrementalAlterConfigs", "error_code", ours=42, theirs=40))),
    Known(_SEVERAL, _of_kind(TOPIC, _unknown_and_wrong("AlterConfigs"))),
    Known(_SEVERAL, _of_kind(TOPIC, _unknown_and_wrong("IncrementalAlterConfigs"))),
    Known("a word that no access rule has", _rule_of_no_sense),
    Known("empty group id", _field("DeleteGroups", "error_code", ours=24, theirs=69)),
    Known("empty group id", _nameless_group),
    Known(
        "CreateTopics for show",
        _where(lambda _, asked: asked.request.validate_only, _field("CreateTopics", "topic_id", ours="00" * 16)),
    ),
    Known("ListOffsets by time", _by_time),
    Known("ListOffsets of what is uploaded", _uploaded),
    Known("records of an open transaction that were deleted", _deleted_in_transaction),
    Known("`aborted_transactions` in Fetch", _aborted),
)
