"""Carries one parcel of partitions to object storage: gather, claim, PUT, commit, tell the log.

Whatever fails before a commit leaves the records in the WAL, where they can still be read, and their segments go back
to IN_WAL. The object of a failed attempt is never used again; it expires.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.blob.store import BlobStore
from headrace.clock import Clock
from headrace.errors import Concurrent, NotFound, Unavailable
from headrace.ids import Partition, TopicId
from headrace.log.partition import PartitionLog
from headrace.log.policy import Durability
from headrace.records.batch import Buffer, read_header
from headrace.telemetry.logging import get_logger
from headrace.tier.commits import Commits, NewObject, topic_entry
from headrace.tier.describe import log_start_of, placed_at, segment_of
from headrace.tier.format.manifest import Manifest
from headrace.tier.format.object import Footer, Kind, ObjectBuilder, Run
from headrace.tier.lives import Lives
from headrace.tier.metrics import TierMetrics
from headrace.tier.plans import Claim
from headrace.tier.slices import in_slices
from headrace.tier.writing import put_data

log = get_logger(__name__)


class Piece(msgspec.Struct, frozen=True):
    """One partition's part of an upload."""

    partition: PartitionLog
    stretches: list[Buffer]
    base_offset: int
    end_offset: int


class _Cargo(msgspec.Struct, frozen=True):
    """An object ready to be put: its pieces by the commit that they belong to, and the runs of each."""

    kind: Kind
    builder: ObjectBuilder
    shares: list[Sequence[Piece]]
    runs: list[list[list[Run]]]


class Carrier:
    """Safe for several parcels at once, as long as no partition is in two of them."""

    def __init__(
        self,
        *,
        blobs: BlobStore,
        commits: Commits,
        clock: Clock,
        metrics: TierMetrics,
        lives: Lives,
        on_uploaded: Callable[[str, Footer], None] = lambda key, footer: None,
        has_states: bool = False,
    ) -> None:
        """`has_states`: objects say for others what their records say of producers and transactions."""
        self._has_states = has_states
        self._blobs = blobs
        self._commits = commits
        self._clock = clock
        self._metrics = metrics
        self._lives = lives
        self._on_uploaded = on_uploaded

    async def settle(self) -> None:
        """To be called before anything is gathered: what an earlier attempt left in doubt is looked up."""
        await self._commits.settle()

    async def gather(
        self,
        partitions: Sequence[PartitionLog],
        bytes_max: int,
        starts: Mapping[PartitionLog, int] | None = None,
    ) -> list[Piece]:
        """What there is to upload, up to `bytes_max`: from where object storage ends, or from `starts` on."""
        pieces: list[Piece] = []
        room = bytes_max
        async for partition in in_slices(partitions):
            if room <= 0:
                break
            if partition.removed:
                continue
            start = starts[partition] if starts is not None else max(partition.uploaded_end, partition.log_start)
            limit = upload_limit(partition)
            if start >= limit:
                continue
            found = await partition.read_for_upload(start, room, limit)
            if found.stretches:
                base = max(start, read_header(found.stretches[0]).base_offset)
                pieces.append(Piece(partition, found.stretches, base, found.end_offset))
                room -= sum(map(len, found.stretches))
        return pieces

    async def carry(self, kind: Kind, pieces: Sequence[Piece], *, previous: asyncio.Future[bool] | None = None) -> bool:
        """True when the pieces are committed, or there are none; False when they have to be brought again.

        `previous` says when an upload in front of this one, of the same partitions, has ended, and how: only then can this
        one be committed. Its bytes are on their way before.
        """
        if not pieces:
            return True
        started_ms = self._clock.monotonic_ms()
        self._metrics.tier_uploads_under_way += 1
        try:
            await self._carry_out(kind, pieces, previous)
        except (Unavailable, NotFound) as error:
            self._metrics.tier_upload_failures_total += 1
            log.warning("upload failed; its records stay in the WAL", partitions=len(pieces), reason=str(error))
            return False
        finally:
            self._metrics.tier_uploads_under_way -= 1
        self._metrics.tier_commit_ms.record(self._clock.monotonic_ms() - started_ms)
        return True

    async def _carry_out(self, kind: Kind, pieces: Sequence[Piece], previous: asyncio.Future[bool] | None) -> None:
        """One object, and as many commits as its segments need: each is whole, and each is told to the log at once.

        The object is known before a byte of it is written. With nobody in front that takes no transaction of its own: its
        pieces are claimed in the same.
        """
        target = await self._commits.new_object()
        try:
            if previous is None:
                claims = await self._claim(target, self._shares(pieces))
                cargo = await self._build(kind, pieces)
                (stored,) = await asyncio.gather(self._put(target, cargo), return_exceptions=True)
            else:
                await self._commits.name(target)
                cargo = await self._build(kind, pieces)
                # Both to their end, whatever comes of the other: what was claimed must be known, to be given back.
                stored, claimed = await asyncio.gather(
                    self._put(target, cargo), self._claim_behind(previous, target, cargo.shares), return_exceptions=True
                )
                if isinstance(claimed, BaseException):
                    raise claimed
                claims = claimed
            await self._commit_all(target, cargo, claims, stored)
        finally:
            self._commits.give_up(target)
        self._metrics.tier_uploaded_objects_total += 1
        self._metrics.tier_uploaded_bytes_total += cargo.builder.body_size

    def _shares(self, pieces: Sequence[Piece]) -> list[Sequence[Piece]]:
        """What one commit takes of them each."""
        size = self._commits.segments_max
        return [pieces[start : start + size] for start in range(0, len(pieces), size)]

    async def _claim(self, target: NewObject, shares: Sequence[Sequence[Piece]]) -> list[list[Claim]]:
        return [await self._prepare(target, share) for share in shares]

    async def _claim_behind(
        self, previous: asyncio.Future[bool], target: NewObject, shares: Sequence[Sequence[Piece]]
    ) -> list[list[Claim]]:
        if not await previous:
            raise Concurrent("the upload in front of it failed")
        return await self._claim(target, shares)

    async def _build(self, kind: Kind, pieces: Sequence[Piece]) -> _Cargo:
        builder = ObjectBuilder(kind, has_states=self._has_states)
        shares = self._shares(pieces)
        runs = [[await self._add(builder, piece) for piece in share] for share in shares]
        return _Cargo(kind, builder, shares, runs)

    async def _put(self, target: NewObject, cargo: _Cargo) -> None:
        # Beside the upload, which takes longer: nothing is committed by a life that another one has overtaken.
        await asyncio.gather(put_data(self._blobs, target.key, cargo.builder.chunks()), self._lives.look())

    async def _commit_all(
        self, target: NewObject, cargo: _Cargo, claims: Sequence[list[Claim]], stored: BaseException | None
    ) -> None:
        """`stored` is why the object is not, if it is not: then the claims are given back."""
        committed = 0
        try:
            if stored is not None:
                raise stored
            self._note_footer(target, cargo)
            for share, share_claims, share_runs in zip(cargo.shares, claims, cargo.runs, strict=True):
                await self._commit(target, cargo.builder, share, share_claims, share_runs)
                committed += 1
                async for piece in in_slices(share):
                    piece.partition.mark_uploaded(piece.end_offset)
        except Unavailable:
            for share, share_claims in zip(cargo.shares[committed:], claims[committed:], strict=True):
                await self._give_back(share, share_claims)
            raise

    async def _prepare(self, target: NewObject, share: Sequence[Piece]) -> list[Claim]:
        claims = [
            self._commits.claim(
                piece.partition.topic_id,
                piece.partition.index,
                base_offset=piece.base_offset,
                end_offset=piece.end_offset,
                leader_epoch=piece.partition.leader_epoch,
            )
            async for piece in in_slices(share)
        ]
        return await self._commits.prepare(target, claims)

    def _note_footer(self, target: NewObject, cargo: _Cargo) -> None:
        every = tuple(run for share in cargo.runs for part in share for run in part)
        self._on_uploaded(target.key, Footer(kind=cargo.kind, runs=every))

    async def _add(self, builder: ObjectBuilder, piece: Piece) -> list[Run]:
        """A stretch at a time: the CRCs of a whole object would keep the loop for milliseconds."""
        builder.begin(TopicId(piece.partition.topic_id), Partition(piece.partition.index))
        for stretch in piece.stretches:
            builder.extend_stretch(stretch)
            await asyncio.sleep(0)
        return builder.finish()

    async def _commit(
        self,
        target: NewObject,
        builder: ObjectBuilder,
        pieces: Sequence[Piece],
        claims: Sequence[Claim],
        runs: Sequence[list[Run]],
    ) -> None:
        placed = [placed_at(claim, part) for claim, part in zip(claims, runs, strict=True)]
        segments = [
            segment_of(piece.partition, each, target.key, builder, bucket_end=piece.end_offset)
            async for piece, each in in_slices(list(zip(pieces, placed, strict=True)))
        ]

        def describe(number: int, now_ms: int) -> Manifest:
            topics = dict.fromkeys(piece.partition.topic_id for piece in pieces)
            return msgspec.structs.replace(
                self._commits.new_manifest(number, now_ms),
                topics=tuple(topic_entry(self._commits.topic(topic_id)) for topic_id in topics),
                added=tuple(segments),
                # The log has forgotten which transactions below its start were aborted: nobody may read them here, either.
                log_starts=tuple(
                    log_start_of(piece.partition) for piece in pieces if piece.partition.log_start > piece.base_offset
                ),
            )

        await self._commits.commit(target, placed, builder.size, describe)

    async def _give_back(self, pieces: Sequence[Piece], claims: Sequence[Claim]) -> None:
        alive = [claim for piece, claim in zip(pieces, claims, strict=True) if not piece.partition.removed]
        await self._commits.keep_in_wal(alive)


def upload_limit(partition: PartitionLog) -> int:
    """`object` records are uploaded to become readable; all others only once they are."""
    if partition.policy.durability is Durability.OBJECT:
        return partition.durable_end
    return partition.high_watermark
