"""The tier's metastore transactions, decided here and carried out by `commits`.

Every transaction of a broker carries its fence (no newer incarnation of it), compares each partition's leader entry
(same leader epoch, same topic: a topic created again has new entries) and the entry of the segment it starts from
(the expected base offset). Segment states are IN_WAL -> UPLOADING -> IN_OBJECT_STORE, and back to IN_WAL when an
upload fails. A commit also takes the next manifest number and leaves the manifest's bytes in the metastore, from
where they go to the bucket: what a number means is decided here, once, atomically.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.control import keys, values
from headrace.control import values_pb2 as pb
from headrace.control.metastore import Compare, Delete, Op, Put, Read, Txn, TxnLimits, only, prefix, size_of, unchanged
from headrace.tier.format.manifest import Manifest, encode_manifest

PENDING_MANIFESTS: Final = prefix("/headrace/manifests/")
HOLD: Final = "/headrace/tier/hold"
"""While this key is there nothing is collected: the metastore was restored and has not been verified."""

BUCKET: Final = "/headrace/tier/bucket"
"""Address of the bucket that this cluster has claimed: it may be out of reach when a broker starts."""

LIVES: Final = "/headrace/tier/lives"
"""Ids of the lives that have written to the bucket with this metastore: whoever finds another one there stops."""

OPS_PER_SEGMENT: Final = 2
"""Compares, or writes, that one segment needs in a transaction."""
BYTES_PER_SEGMENT: Final = 4096
"""Of its rows, compares and lines in the manifest, with a topic's longest name in each of them: at most about."""
OPS_PER_COMMIT: Final = 4
"""Those of the commit itself: fence, counter, object and manifest."""


class Author(msgspec.Struct, frozen=True, gc=False):
    """The broker that writes."""

    broker_id: str
    number: int
    epoch: int


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition's stretch of offsets, and the revisions that the transaction relies on."""

    topic_id: bytes
    topic: str
    partition: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    leader_revision: int
    segment_revision: int = 0
    """Of the entry at `base_offset`; 0 when there is none."""
    stale_base: int | None = None
    """An IN_WAL entry at another offset than `base_offset`, to be dropped: the log start overtook it."""

    @property
    def key(self) -> str:
        return keys.segment(self.topic, self.partition, self.base_offset)


class Placed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where in the object a claim's records are."""

    claim: Claim
    position: int
    length: int
    record_count: int
    max_timestamp_ms: int
    min_leader_epoch: int


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The next manifest number and the revision of its counter."""

    number: int
    revision: int


def pending_manifest(number: int) -> str:
    return f"{PENDING_MANIFESTS.start}{number:020d}"


def pending_number(key: str) -> int:
    return int(key.removeprefix(PENDING_MANIFESTS.start))


class Part(NamedTuple):
    """One segment's share of a transaction. Made one at a time: a thousand of them keep the loop for long."""

    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The object that a transaction is about, and who writes it when."""

    object_id: int
    key: str
    revision: int
    """Of its entry; 0 while there is none. A collected object has another, and cannot be committed."""
    broker: Author
    now_ms: int


def prepare_part(claim: Claim, target: Target) -> Part:
    """IN_WAL -> UPLOADING."""
    segment = pb.Segment(
        status=pb.UPLOADING,
        object_key=target.key,
        end_offset=claim.end_offset,
        object_id=target.object_id,
        leader_epoch=claim.leader_epoch,
        broker_epoch=target.broker.epoch,
        updated_ms=target.now_ms,
    )
    put = Put(claim.key, values.encode(segment))
    if claim.stale_base is None:
        return Part(_claim_compares(claim), (put,))
    stale = only(keys.segment(claim.topic, claim.partition, claim.stale_base))
    return Part(_claim_compares(claim), (put, Delete(stale)))


def prepare(fence: Compare, target: Target, parts: Sequence[Part] = ()) -> Txn:
    """The object is PREPARED and will be collected unless a commit follows."""
    named = unchanged(keys.tier_object(target.object_id), target.revision)
    return _joined([fence, named], [_put_object(pb.PREPARED, target)], parts)


def commit_part(placed: Placed, target: Target, number: int) -> Part:
    """UPLOADING -> IN_OBJECT_STORE."""
    claim = placed.claim
    stored = Put(claim.key, values.encode(_stored(placed, target, number)))
    tail = _put_tail(claim.topic, claim.partition, claim.end_offset, claim.leader_epoch, target.broker, target.now_ms)
    return Part(_claim_compares(claim), (stored, tail))


def commit(
    fence: Compare, target: Target, parts: Sequence[Part], counted: Counted, manifest: bytes, *, object_size: int
) -> Txn:
    """All of `parts` at once, with the number and its manifest."""
    compares = [
        fence,
        unchanged(keys.NEXT_COMMIT_NUMBER, counted.revision),
        unchanged(keys.tier_object(target.object_id), target.revision),
    ]
    put = _put_object(pb.COMMITTED, target, size=object_size, number=counted.number)
    return _joined(compares, [put, *_numbered(counted, manifest)], parts)


def keep_part(claim: Claim, *, broker: Author, now_ms: int) -> Part:
    """UPLOADING -> IN_WAL after a failure, and the first entry of a partition. A failed object expires by itself."""
    tail = _put_tail(claim.topic, claim.partition, claim.base_offset, claim.leader_epoch, broker, now_ms)
    return Part(_claim_compares(claim), (tail,))


def keep_in_wal(fence: Compare, parts: Sequence[Part]) -> Txn:
    return _joined([fence], [], parts)


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of one partition that go, and what takes their place, if anything does."""

    topic_id: bytes
    topic: str
    partition: int
    leader_revision: int
    gone: tuple[tuple[int, int], ...]
    """Base offset and revision of each entry."""
    placed: Placed | None = None


def replace(
    fence: Compare,
    replacements: Sequence[Replacement],
    counted: Counted,
    manifest: bytes,
    target: Target | None = None,
    *,
    object_size: int = 0,
) -> Txn:
    """Take segments out, and put merged ones in their place: retention, compaction. One commit, one manifest."""
    compares = [fence, unchanged(keys.NEXT_COMMIT_NUMBER, counted.revision)]
    ops: list[Op] = [*_numbered(counted, manifest)]
    if target is not None:
        compares.append(unchanged(keys.tier_object(target.object_id), target.revision))
        ops.append(_put_object(pb.COMMITTED, target, size=object_size, number=counted.number))
    for each in replacements:
        compares.append(unchanged(keys.leader(each.topic, each.partition), each.leader_revision))
        kept = each.placed.claim.key if each.placed else None
        for base_offset, revision in each.gone:
            path = keys.segment(each.topic, each.partition, base_offset)
            compares.append(unchanged(path, revision))
            if path != kept:
                ops.append(Delete(only(path)))
        if each.placed is not None and target is not None:
            stored = _stored(each.placed, target, counted.number)
            ops.append(Put(each.placed.claim.key, values.encode(stored)))
    return _compared(compares, ops)


def note(counted: Counted, manifest: bytes, ops: Sequence[Op] = (), compares: Sequence[Compare] = ()) -> Txn:
    """A numbered manifest beside other writes: log starts, deleted topics."""
    return _compared(
        [unchanged(keys.NEXT_COMMIT_NUMBER, counted.revision), *compares], [*_numbered(counted, manifest), *ops]
    )


class Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that has everything but its number: what a broker asks the sequencer for. Either `placed` or `replacements`, or `graves`."""

    broker_id: str
    fence_revision: int
    """Of the broker's identity: a newer incarnation makes the commit fail."""
    manifest: Manifest
    """With number 0."""
    target: Target | None = None
    object_size: int = 0
    placed: tuple[Placed, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    graves: tuple[tuple[str, int], ...] = ()
    """Entries of deleted topics, and their revisions: they go with the manifest that tells of them."""

    @property
    def fence(self) -> Compare:
        return unchanged(keys.broker_identity(self.broker_id), self.fence_revision)


def numbered(wanted: Numbered, counted: Counted) -> Txn:
    """The commit under this number."""
    manifest = encode_manifest(msgspec.structs.replace(wanted.manifest, number=counted.number))
    if wanted.placed:
        assert wanted.target is not None
        parts = [commit_part(each, wanted.target, counted.number) for each in wanted.placed]
        return commit(wanted.fence, wanted.target, parts, counted, manifest, object_size=wanted.object_size)
    if wanted.graves:
        ops = [Delete(only(path)) for path, _ in wanted.graves]
        compares = [unchanged(path, revision) for path, revision in wanted.graves]
        return note(counted, manifest, ops, (wanted.fence, *compares))
    return replace(wanted.fence, wanted.replacements, counted, manifest, wanted.target, object_size=wanted.object_size)


class Together(msgspec.Struct, frozen=True):
    """Commits that share a transaction: as many as it holds of those that wait, in their order."""

    txn: Txn
    count: int


def together(wanted: Sequence[Numbered], counted: Counted, guard: Compare, limits: TxnLimits) -> Together:
    """Numbered from `counted` on; at least the first. They take effect as if each came behind the one before."""
    compares: dict[Compare, None] = {guard: None, unchanged(keys.NEXT_COMMIT_NUMBER, counted.revision): None}
    ops: dict[str, Op] = {}
    size = sum(map(size_of, compares))
    count = 0
    for each in wanted:
        planned = numbered(each, Counted(counted.number + count, counted.revision))
        more = [compare for compare in planned.compares if compare not in compares]
        writes = {_path_of(op): op for op in planned.then_ops if _path_of(op) != keys.NEXT_COMMIT_NUMBER}
        size += sum(map(size_of, more)) + sum(map(size_of, writes.values()))
        is_full = max(len(compares) + len(more), len(ops) + len(writes) + 1) > limits.ops_max or size > limits.bytes_max
        # One behind the other they would be refused where the second relies on what the first changes.
        is_apart = not ops.keys().isdisjoint(writes) or any(compare.key in ops for compare in more)
        if count and (is_full or is_apart):
            break
        compares.update(dict.fromkeys(more))
        ops.update(writes)
        count += 1
    counter = Put(keys.NEXT_COMMIT_NUMBER, values.encode(pb.Counter(next=counted.number + count)))
    found = dict.fromkeys([keys.NEXT_COMMIT_NUMBER, guard.key, *(each.fence.key for each in wanted[:count])])
    return Together(Txn(tuple(compares), (counter, *ops.values()), tuple(Read(only(path)) for path in found)), count)


def _path_of(op: Op) -> str:
    return op.key if isinstance(op, Put) else op.keys.start


def _put_object(status: "pb.ObjectStatus.ValueType", target: Target, *, size: int = 0, number: int = 0) -> Put:
    entry = pb.TierObject(
        status=status,
        object_key=target.key,
        size_bytes=size,
        broker_id=target.broker.broker_id,
        broker_epoch=target.broker.epoch,
        commit_number=number,
        updated_ms=target.now_ms,
    )
    return Put(keys.tier_object(target.object_id), values.encode(entry))


def _stored(each: Placed, target: Target, number: int) -> pb.Segment:
    return pb.Segment(
        status=pb.IN_OBJECT_STORE,
        object_key=target.key,
        size_bytes=each.length,
        end_offset=each.claim.end_offset,
        position=each.position,
        length=each.length,
        max_timestamp_ms=each.max_timestamp_ms,
        min_leader_epoch=each.min_leader_epoch,
        record_count=each.record_count,
        object_id=target.object_id,
        commit_number=number,
        leader_epoch=each.claim.leader_epoch,
        broker_epoch=target.broker.epoch,
        updated_ms=target.now_ms,
    )


def _put_tail(topic: str, partition: int, base: int, leader_epoch: int, broker: Author, now_ms: int) -> Put:
    """The entry of what is still in the WAL: it begins here and has no end yet."""
    tail = pb.Segment(status=pb.IN_WAL, leader_epoch=leader_epoch, broker_epoch=broker.epoch, updated_ms=now_ms)
    return Put(keys.segment(topic, partition, base), values.encode(tail))


def _numbered(counted: Counted, manifest: bytes) -> tuple[Op, Op]:
    return (
        Put(keys.NEXT_COMMIT_NUMBER, values.encode(pb.Counter(next=counted.number + 1))),
        Put(pending_manifest(counted.number), manifest),
    )


def _claim_compares(claim: Claim) -> tuple[Compare, Compare]:
    return (
        unchanged(keys.leader(claim.topic, claim.partition), claim.leader_revision),
        unchanged(claim.key, claim.segment_revision),
    )


def _joined(compares: list[Compare], ops: list[Op], parts: Sequence[Part]) -> Txn:
    for part in parts:
        compares += part.compares
        ops += part.ops
    return _compared(compares, ops)


def _compared(compares: Sequence[Compare], ops: Sequence[Op]) -> Txn:
    """In the other branch, what decides how to go on: the fence and the counter."""
    paths = [keys.NEXT_COMMIT_NUMBER, *(c.key for c in compares if c.key.startswith("/headrace/brokers/"))]
    return Txn(tuple(compares), tuple(ops), tuple(Read(only(path)) for path in dict.fromkeys(paths)))
