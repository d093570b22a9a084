"""Commit manifests and inventory checkpoints: deterministic, checked, versioned, and refused when wrong."""

from pathlib import Path

import msgspec
import pytest

from headrace.errors import Corrupted, NewerFormat, TopicNotFound
from headrace.tier.format.checkpoint import decode_checkpoint, decode_index, decode_section, encode_checkpoint
from headrace.tier.format.headed import with_head
from headrace.tier.format.inventory import Inventory
from headrace.tier.format.manifest import (
    Aborted,
    LogStart,
    Manifest,
    Segment,
    SegmentRef,
    TopicEntry,
    decode_manifest,
    encode_manifest,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "tier"
TOPIC = "00010203-0405-0607-0809-0a0b0c0d0e0f"
OTHER = "10111213-1415-1617-1819-1a1b1c1d1e1f"


def segment(
    base: int, end: int, *, key: str = "", topic_id: str = TOPIC, partition: int = 0, **extra: object
) -> Segment:
    whole = Segment(
        topic_id=topic_id,
        partition=partition,
        base_offset=base,
        end_offset=end,
        key=key or f"data/00/{base}-{end}.hro",
        object_size=5000,
        footer_size=200,
        position=0,
        length=4800,
        record_count=end - base,
        max_timestamp_ms=1_700_000_000_000 + end,
        leader_epoch=3,
        last_stable_offset=end,
    )
    return msgspec.structs.replace(whole, **extra)


def topic(topic_id: str = TOPIC, name: str = "orders") -> TopicEntry:
    return TopicEntry(
        topic_id=topic_id, name=name, partition_count=2, config={"retention.ms": "-1", "cleanup.policy": "delete"}
    )


def sample() -> list[Manifest]:
    return [
        Manifest(
            number=1,
            cluster_id="c1",
            created_ms=1,
            broker_id=1,
            broker_epoch=2,
            topics=(topic(),),
            added=(segment(0, 10), segment(0, 4, partition=1)),
        ),
        Manifest(
            number=2,
            cluster_id="c1",
            created_ms=2,
            topics=(topic(),),
            added=(
                segment(
                    10, 25, last_stable_offset=20, aborted=(Aborted(producer_id=7, first_offset=8, last_offset=12),)
                ),
            ),
        ),
        Manifest(
            number=3,
            cluster_id="c1",
            created_ms=3,
            removed=(
                SegmentRef(topic_id=TOPIC, partition=0, base_offset=0, key="data/00/0-10.hro"),
                SegmentRef(topic_id=TOPIC, partition=0, base_offset=10, key="data/00/10-25.hro"),
            ),
            added=(segment(0, 25, key="data/00/merged.hro", last_stable_offset=20),),
        ),
        Manifest(
            number=4, cluster_id="c1", created_ms=4, log_starts=(LogStart(topic_id=TOPIC, partition=0, offset=5),)
        ),
    ]


def fold(manifests: list[Manifest], *, base: Inventory | None = None) -> Inventory:
    """The inventory after `manifests`, which follow `base` in order."""
    inventory = base or Inventory("c1")
    for manifest in manifests:
        inventory.apply(manifest)
    return inventory


def test_manifest_round_trip_is_deterministic() -> None:
    for manifest in sample():
        data = encode_manifest(manifest)
        assert decode_manifest(data) == manifest
        assert encode_manifest(decode_manifest(data)) == data
    shuffled = TopicEntry(
        topic_id=TOPIC, name="orders", partition_count=2, config={"cleanup.policy": "delete", "retention.ms": "-1"}
    )
    one = Manifest(number=1, cluster_id="c", created_ms=0, topics=(topic(),))
    assert encode_manifest(one) == encode_manifest(msgspec.structs.replace(one, topics=(shuffled,)))


def test_manifest_damage_is_noticed_at_every_byte() -> None:
    data = encode_manifest(sample()[1])
    for index in range(len(data) - 1):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[index] ^= 1 << bit
            # Never `NewerFormat`, which stops a node: what is damaged on its way is read again.
            with pytest.raises(Corrupted):
                decode_manifest(bytes(damaged))
        with pytest.raises(Corrupted):
            decode_manifest(data[:index])


def test_newer_manifest_is_refused_by_name() -> None:
    with pytest.raises(NewerFormat, match="version 2"):
        decode_manifest(with_head("manifest", 2, b"{}"))


def test_fold_follows_commits() -> None:
    inventory = fold(sample())
    state = inventory.partition(TOPIC, 0)
    assert inventory.number == 4
    assert [(s.base_offset, s.end_offset, s.key) for s in state.segments] == [(0, 25, "data/00/merged.hro")]
    assert (state.log_start, state.last_stable_offset, state.end_offset) == (5, 20, 25)
    assert [a.producer_id for a in state.aborted] == [7]
    assert inventory.partition(TOPIC, 1).end_offset == 4
    assert inventory.topic_named("orders").topic_id == TOPIC


def test_aborted_ranges_leave_with_the_log_start() -> None:
    inventory = fold(sample())
    inventory.apply(
        Manifest(
            number=5, cluster_id="c1", created_ms=5, log_starts=(LogStart(topic_id=TOPIC, partition=0, offset=13),)
        )
    )
    assert inventory.partition(TOPIC, 0).aborted == ()


def test_a_name_moves_to_the_topic_that_was_created_again() -> None:
    inventory = fold(sample())
    inventory.apply(
        Manifest(
            number=5, cluster_id="c1", created_ms=5, topics=(topic(OTHER),), added=(segment(0, 1, topic_id=OTHER),)
        )
    )
    assert inventory.topic_named("orders").topic_id == OTHER
    assert inventory.partition(TOPIC, 0).segments == ()
    inventory.apply(Manifest(number=6, cluster_id="c1", created_ms=6, deleted_topics=(OTHER,)))
    with pytest.raises(TopicNotFound):
        inventory.topic_named("orders")


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(number=6, cluster_id="c1", created_ms=0),
        Manifest(number=5, cluster_id="other", created_ms=0),
        Manifest(number=5, cluster_id="c1", created_ms=0, added=(segment(20, 30),)),
        Manifest(
            number=5,
            cluster_id="c1",
            created_ms=0,
            removed=(SegmentRef(topic_id=TOPIC, partition=0, base_offset=0, key="no"),),
        ),
    ],
    ids=["out of order", "another cluster", "overlap", "removes what is not there"],
)
def test_impossible_commit_is_refused_and_changes_nothing(manifest: Manifest) -> None:
    inventory = fold(sample())
    before = encode_checkpoint(inventory)
    with pytest.raises(Corrupted):
        inventory.apply(manifest)
    assert encode_checkpoint(inventory) == before


def test_checkpoint_is_the_fold() -> None:
    inventory = fold(sample())
    data = encode_checkpoint(inventory)
    assert decode_checkpoint(data) == inventory
    resumed = fold(sample()[2:], base=decode_checkpoint(encode_checkpoint(fold(sample()[:2]))))
    assert resumed == inventory
    assert encode_checkpoint(resumed) == data


def test_one_partition_is_read_without_the_rest() -> None:
    data = encode_checkpoint(fold(sample()))
    section = next(s for s in decode_index(data).sections if s.partition == 1)
    state = decode_section(section, data[section.position : section.position + section.length])
    assert state.end_offset == 4
    with pytest.raises(Corrupted):
        decode_section(section, b"x" * section.length)


def test_golden_manifests_and_checkpoint_of_version_1() -> None:
    for manifest in sample():
        assert (GOLDEN / f"manifest-{manifest.number}-v1.hrm").read_bytes() == encode_manifest(manifest)
    golden = (GOLDEN / "checkpoint-v1.hrc").read_bytes()
    assert decode_checkpoint(golden) == fold(sample())
    assert golden == encode_checkpoint(fold(sample()))


def test_empty_inventory_round_trips() -> None:
    assert decode_checkpoint(encode_checkpoint(Inventory("c1"))) == Inventory("c1")
