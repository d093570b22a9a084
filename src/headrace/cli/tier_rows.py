"""The bucket's inventory as table rows."""

from headrace.cli.output import Row
from headrace.tier.format.inventory import Inventory, PartitionState


def partition_rows(inventory: Inventory) -> list[Row]:
    rows = [_partition_row(inventory, state) for state in inventory.partitions.values()]
    return sorted(rows, key=lambda row: (str(row["topic"]), int(str(row["partition"]))))


def segment_rows(inventory: Inventory, topic: str) -> list[Row]:
    known = inventory.topic_named(topic)
    return [
        {
            "partition": index,
            "base_offset": segment.base_offset,
            "end_offset": segment.end_offset,
            "records": segment.record_count,
            "bytes": segment.length,
            "max_timestamp_ms": segment.max_timestamp_ms,
            "leader_epoch": segment.leader_epoch,
            "key": segment.key,
        }
        for index in range(known.partition_count)
        for segment in inventory.partition(known.topic_id, index).segments
    ]


def _partition_row(inventory: Inventory, state: PartitionState) -> Row:
    topic = inventory.topics.get(state.topic_id)
    return {
        "topic": topic.name if topic is not None else state.topic_id,
        "topic_id": state.topic_id,
        "partition": state.partition,
        "log_start": state.log_start,
        "end_offset": state.end_offset,
        "last_stable_offset": state.last_stable_offset,
        "segments": len(state.segments),
        "objects": len({segment.key for segment in state.segments}),
        "bytes": sum(segment.length for segment in state.segments),
    }
