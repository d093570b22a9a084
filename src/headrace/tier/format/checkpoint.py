"""Inventory checkpoints: everything the manifests up to a number say, so that readers need not replay them.

    partition section | partition section | ... | index | tail

A section is the JSON of one `PartitionState`; the index lists topics and, per partition, where its section
lies and its CRC. A reader of one topic gets the index and that topic's sections, not the whole file. Like
manifests, checkpoints are deterministic and create-only: two brokers that fold the same manifests agree.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.errors import Corrupted
from headrace.records.batch import Buffer
from headrace.tier.format.framing import open_footer, parse_tail, seal
from headrace.tier.format.inventory import Inventory, PartitionKey, PartitionState
from headrace.tier.format.manifest import TopicEntry

MAGIC: Final = b"HRTIERCP"
VERSION: Final = 1


class Section(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: str
    partition: int
    position: int
    length: int
    crc: int


class CheckpointIndex(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    cluster_id: str
    topics: tuple[TopicEntry, ...]
    sections: tuple[Section, ...]


def encode_checkpoint(inventory: Inventory) -> bytes:
    body = bytearray()
    sections: list[Section] = []
    for key in sorted(inventory.partitions):
        data = msgspec.json.encode(inventory.partitions[key], order="deterministic")
        sections.append(
            Section(
                topic_id=key.topic_id,
                partition=key.partition,
                position=len(body),
                length=len(data),
                crc=crc32c(data),
            )
        )
        body += data
    index = CheckpointIndex(
        number=inventory.number,
        cluster_id=inventory.cluster_id,
        topics=tuple(inventory.topics[topic_id] for topic_id in sorted(inventory.topics)),
        sections=tuple(sections),
    )
    footer = msgspec.json.encode(index, order="deterministic")
    body += seal(footer, item_count=len(sections), version=VERSION, kind=0, magic=MAGIC)
    return bytes(body)


def decode_index(end_of_file: Buffer) -> CheckpointIndex:
    tail = parse_tail(end_of_file, magic=MAGIC)
    try:
        return msgspec.json.decode(open_footer(end_of_file, tail, version_max=VERSION), type=CheckpointIndex)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"checkpoint index does not parse: {error}") from error


def decode_section(section: Section, data: Buffer) -> PartitionState:
    if len(data) != section.length or crc32c(data) != section.crc:
        raise Corrupted(f"checkpoint section of {section.topic_id}-{section.partition} does not match its CRC")
    try:
        return msgspec.json.decode(data, type=PartitionState)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"checkpoint section does not parse: {error}") from error


def inventory_of(index: CheckpointIndex, states: Iterable[PartitionState]) -> Inventory:
    """An inventory of the partitions that were read. Partitions left out are unknown, not empty."""
    return Inventory(
        cluster_id=index.cluster_id,
        number=index.number,
        topics={topic.topic_id: topic for topic in index.topics},
        partitions={PartitionKey(state.topic_id, state.partition): state for state in states},
    )


def decode_checkpoint(data: Buffer) -> Inventory:
    """The whole inventory, from the whole file."""
    view = memoryview(data)
    index = decode_index(view)
    return inventory_of(index, (decode_section(s, view[s.position : s.position + s.length]) for s in index.sections))
