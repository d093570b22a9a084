"""What there is to read right now: partitions, their bounds, and which of their offsets the bucket holds.

`Log` answers from the brokers where some are configured, because only they know the live end; otherwise from the bucket
alone. Either way the answer has the same shape, and planning cannot tell the difference.
"""

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from headrace.errors import NotFound, TopicNotFound
from headrace.pipeline.decoder import AbortedTransaction, Columns, Isolation, decode
from headrace.pipeline.source.bucket import Bucket
from headrace.pipeline.source.offsets import TopicPartition
from headrace.pipeline.source.options import SourceOptions, Subscription
from headrace.tier.format.inventory import Inventory, PartitionState
from headrace.tier.format.plan import plan, segment_for_time, split

if TYPE_CHECKING:
    from headrace.pipeline.source.broker import BrokerClient

_RUN_AT_A_TIME: Final = 1


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """One partition at one moment. `end` already honours the isolation level."""

    place: TopicPartition
    topic_id: str
    log_start: int
    end: int
    stored: PartitionState | None = None
    """Its part of the bucket, or None when nothing is there."""
    is_committed: bool = False

    @property
    def stored_end(self) -> int:
        """Offsets below this are read from objects, the rest from a broker.

        Committed reads stop at the stable offset that the bucket knows: past it, the abort marker of an uploaded
        record may not be uploaded yet.
        """
        if self.stored is None:
            return self.log_start
        known = self.stored.last_stable_offset if self.is_committed else self.stored.end_offset
        return min(known, self.stored.end_offset, self.end)

    def aborted(self) -> tuple[AbortedTransaction, ...]:
        if self.stored is None:
            return ()
        return tuple(AbortedTransaction(a.producer_id, a.first_offset, a.last_offset) for a in self.stored.aborted)


View = dict[TopicPartition, PartitionView]


class Log(Protocol):
    def view(self) -> View:
        """Every partition of the subscription. Raises `TopicNotFound` for a topic given by name that is not there."""
        ...

    def offset_at(self, partition: PartitionView, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older than the time, or None when all are."""
        ...

    def footer_source(self) -> Bucket | None: ...


def open_log(options: SourceOptions) -> Log:
    bucket = Bucket(options.bucket) if options.bucket is not None else None
    if options.brokers:
        # Kafka's messages take long to import, and who reads a bucket alone has no use for them.
        from headrace.pipeline.source.broker import FIRST_ANSWER_S, BrokerClient

        client = BrokerClient(options.brokers, security=options.security, first_answer_s=FIRST_ANSWER_S)
        return BrokerLog(options, client, bucket)
    assert bucket is not None, "options without brokers and bucket are refused when parsed"
    return BucketLog(options, bucket)


class BucketLog:
    """The log as the bucket alone tells it: it ends where uploading got to."""

    def __init__(self, options: SourceOptions, bucket: Bucket) -> None:
        self._options = options
        self._bucket = bucket

    def view(self) -> View:
        inventory = self._bucket.refresh()
        view: View = {}
        for topic in inventory.topics.values():
            if not self._options.subscription.matches(topic.name, is_internal=topic.is_internal):
                continue
            for partition in range(topic.partition_count):
                if self._options.subscription.takes(topic.name, partition):
                    place = TopicPartition(topic.name, partition)
                    view[place] = self._view_partition(place, inventory.partition(topic.topic_id, partition))
        _require_topics(self._options.subscription, view)
        return view

    def _view_partition(self, place: TopicPartition, state: PartitionState) -> PartitionView:
        is_committed = self._options.isolation is Isolation.READ_COMMITTED
        end = min(state.end_offset, state.last_stable_offset) if is_committed else state.end_offset
        return PartitionView(
            place=place,
            topic_id=state.topic_id,
            log_start=state.log_start,
            end=max(end, state.log_start),
            stored=state,
            is_committed=is_committed,
        )

    def offset_at(self, partition: PartitionView, timestamp_ms: int) -> int | None:
        return stored_offset_at(self._bucket, partition, timestamp_ms)

    def footer_source(self) -> Bucket | None:
        return self._bucket


class BrokerLog:
    """The log as its brokers tell it, with what the bucket holds beside it."""

    def __init__(self, options: SourceOptions, client: "BrokerClient", bucket: Bucket | None) -> None:
        self._options = options
        self._client = client
        self._bucket = bucket

    def view(self) -> View:
        # The bucket first: what is uploaded in between is then read from the broker, which is right as well.
        inventory = self._inventory()
        subscription = self._options.subscription
        topics = [
            topic
            for topic in self._client.topics(subscription.names)
            if subscription.matches(topic.name, is_internal=topic.is_internal)
        ]
        places = [
            TopicPartition(topic.name, partition)
            for topic in topics
            for partition in topic.partitions
            if subscription.takes(topic.name, partition)
        ]
        is_committed = self._options.isolation is Isolation.READ_COMMITTED
        starts = self._client.earliest_offsets(places)
        ends = self._client.latest_offsets(places, is_committed=is_committed)
        ids = {topic.name: topic.topic_id for topic in topics}
        view = {
            place: PartitionView(
                place=place,
                topic_id=ids[place.topic],
                log_start=starts[place],
                end=ends[place],
                stored=_stored(inventory, ids[place.topic], place.partition),
                is_committed=is_committed,
            )
            for place in places
        }
        _require_topics(subscription, view)
        return view

    def _inventory(self) -> Inventory | None:
        if self._bucket is None:
            return None
        try:
            return self._bucket.refresh()
        except NotFound:
            # A young cluster has uploaded nothing, not even its name; its brokers have it all.
            return None

    def offset_at(self, partition: PartitionView, timestamp_ms: int) -> int | None:
        return self._client.offset_at(partition.place, timestamp_ms)

    def footer_source(self) -> Bucket | None:
        return self._bucket


def stored_offset_at(bucket: Bucket, partition: PartitionView, timestamp_ms: int) -> int | None:
    """Look a time up in the bucket: segment by the inventory, run by the footer, record by decoding that run."""
    state = partition.stored
    if state is None:
        return None
    columns = Columns(["offset", "timestamp"])
    segment = segment_for_time(state, timestamp_ms)
    start = segment.base_offset if segment is not None else state.end_offset
    for whole in plan(state, start=start, end=partition.end, since_ms=timestamp_ms):
        for run in split(whole, bucket.footer(whole), bytes_max=_RUN_AT_A_TIME, since_ms=timestamp_ms):
            data = bucket.read(run.key, run.position, run.length)
            for batch in decode(data, topic="", partition=0, columns=columns, first=run.start, end=run.end):
                times = batch.column("timestamp").cast("int64").to_numpy()
                found = (times >= timestamp_ms * 1000).nonzero()[0]
                if len(found):
                    return int(batch.column("offset")[int(found[0])].as_py())
    return None


def _stored(inventory: Inventory | None, topic_id: str, partition: int) -> PartitionState | None:
    if inventory is None or topic_id not in inventory.topics:
        return None
    return inventory.partition(topic_id, partition)


def _require_topics(subscription: Subscription, view: View) -> None:
    names = subscription.names
    if names is None:
        return
    missing = set(names) - {place.topic for place in view}
    if missing:
        raise TopicNotFound(f"no such topic: {', '.join(sorted(missing))}")
    if subscription.assigned is not None:
        for topic, partitions in subscription.assigned.items():
            for partition in partitions:
                if TopicPartition(topic, partition) not in view:
                    raise NotFound(f"topic {topic} has no partition {partition}")
