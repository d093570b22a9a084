"""A large node for tests of what administrators ask of one: as much of it as lists and pages look at, and no disk."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tests.support.metastores import ManualClock

from headrace.admin.api.calls import Parts, PipelinesState, StorageState, StoredObject, StoredSegment
from headrace.admin.api.operations import Operations
from headrace.admin.login.entrance import Entrance, EntranceSettings
from headrace.admin.session import Health
from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.groups.lag import LagTrends
from headrace.broker.groups.standings import Standings
from headrace.broker.identity import Identity
from headrace.broker.offset_records import CommittedOffset
from headrace.broker.offsets import Offsets
from headrace.broker.topics import Topics
from headrace.ids import BrokerEpoch, BrokerId
from headrace.telemetry.history import STEP_MS, History, Series

TOPICS = 10_000
GROUPS = 1_000
SERIES = {
    "bytes_in": "bytes",
    "bytes_out": "bytes",
    "records_in": "records",
    "records_out": "records",
    "exposed_bytes": "bytes",
    "bucket_bytes": "bytes",
    "requests": "count",
    "request_dollars": "dollars",
    "late_ms": "ms",
}
SAMPLES = 400


def _history() -> History:
    """An hour and more, as the overview shows it."""
    history = History(
        [
            Series(
                name=name, sentence=name, kind="gauge", unit=cast(Any, unit), read=lambda: 1.0
            )  # Any: one of a few words
            for name, unit in SERIES.items()
        ]
    )
    for number in range(SAMPLES):
        history.sample((number - SAMPLES) * STEP_MS)
    return history


def partition_of(topic: str, index: int) -> Any:  # Any: as much of a partition as the API looks at
    return SimpleNamespace(
        topic_name=topic,
        topic_id=bytes(16),
        index=index,
        log_start=0,
        high_watermark=index + 7,
        end_offset=index + 7,
        last_stable_offset=index + 7,
        uploaded_end=index,
        leader_epoch=1,
        segment_count=1,
        producers=None,
        transactions=None,
        tail_bytes=index,
        uploaded_bytes=index * 10,
        unuploaded_bytes=7,
        unuploaded_since_ms=1,
        removed=False,
    )


def topic_of(name: str, partitions: int) -> Any:  # Any: as above
    return SimpleNamespace(
        name=name,
        id=bytes(16),
        is_internal=False,
        created_ms=0,
        overrides={},
        partitions=[partition_of(name, index) for index in range(partitions)],
        leaders=["b1"] * partitions,
    )


class LargeNode:
    """As much of a broker as lists look at."""

    def __init__(self) -> None:
        names = [f"topic-{number:05}" for number in range(TOPICS)]
        self.by_name = {name: topic_of(name, 1) for name in names} | {"wide": topic_of("wide", TOPICS)}
        self._committed = {
            f"group-{number}": {(names[number * 10 + place], 0): CommittedOffset(offset=1) for place in range(10)}
            for number in range(GROUPS)
        }
        self._committed["wide"] = {("wide", index): CommittedOffset(offset=index) for index in range(TOPICS)}

    def get(self, name: str) -> Any:  # Any: as above
        return self.by_name[name]

    def partition(self, name: str, index: int) -> Any:  # Any: as above
        return self.by_name[name].partitions[index]

    def has_partition(self, name: str, index: int) -> bool:
        return name in self.by_name

    def groups(self) -> list[str]:
        return list(self._committed)

    names = groups

    def all_of(self, group: str) -> dict[tuple[str, int], CommittedOffset]:
        return dict(self._committed[group])

    def find(self, group: str) -> Any:  # Any: as above
        return SimpleNamespace(members={}, state=SimpleNamespace(value="Empty"), assignor="uniform")

    def listing(self, group: str) -> Any:  # Any: as above
        return SimpleNamespace(group_id=group, kind="classic", state="Empty")


class RecordsOfNow:
    """When records were written, without looking."""

    async def of(self, partition: object, offset: int) -> int:
        return 0


class LargeBucket:
    """As much of the tier as lists look at."""

    def objects(self) -> Iterator[StoredObject]:
        return (
            StoredObject(key=f"{number:08}", size_bytes=number, dead_bytes=0, partition_count=1)
            for number in range(TOPICS)
        )

    def state(self) -> StorageState:
        return StorageState(
            address="memory",
            is_down=False,
            object_count=TOPICS,
            object_bytes=1,
            dead_bytes=0,
            manifests_pending=0,
            spill_bytes=0,
            wal_capacity_bytes=1,
            wal_used_bytes=0,
            arena_bytes=0,
            requests={},
            sent_bytes=0,
            received_bytes=0,
            request_dollars=0,
            month_dollars=0,
            prices_from="",
        )

    def segments(self, topic_id: bytes, partition: int) -> Iterator[StoredSegment]:
        # All in one partition: those without any take their time, too.
        return (
            StoredSegment(
                partition=partition,
                base_offset=number,
                end_offset=number + 1,
                record_count=1,
                size_bytes=1,
                max_timestamp_ms=0,
                leader_epoch=0,
                committed_ms=0,
                key="o",
                position=0,
            )
            for number in range(0 if partition else TOPICS)
        )


class Hurried(ManualClock):
    """Nothing that is kept for a while is still good: everybody pays for the whole walk."""

    def monotonic_ms(self) -> int:
        self.advance(1_000_000)
        return self.time_ms


def large_parts() -> Parts:
    """A node with 20,000 partitions, 1,000 groups and 10,000 objects, as far as lists and pages look into it."""
    node = LargeNode()
    broker = SimpleNamespace(
        topics=node,
        offsets=node,
        groups=node,
        clock=ManualClock(0),
        identity=Identity(cluster_id="c", broker_id=BrokerId(1), broker_name="b1", broker_epoch=BrokerEpoch(1)),
    )
    health = Health(is_ready=True, broker_id="b1", version="0", uptime_ms=1)
    return cast(
        Parts,
        SimpleNamespace(
            broker=broker,
            gate=Entrance(Access(SecuritySettings()), EntranceSettings(), ManualClock()),
            health=lambda: health,
            watch=SimpleNamespace(controllers=()),
            storage=LargeBucket(),
            pipelines=SimpleNamespace(state=lambda: PipelinesState(state="off")),
            operations=Operations(ManualClock(0)),
            history=_history(),
            record_times=RecordsOfNow(),
            lag_trends=LagTrends(cast(Topics, node), cast(Offsets, node)),
            standings=Standings(cast(Topics, node), cast(Offsets, node), Hurried()),
        ),
    )
