"""What the node and its search processes say to each other: one order, then lines of JSON until the end."""

import msgspec

from headrace.blob.settings import ObjectStoreSettings


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A segment to look through: where its bytes are, and which of its offsets count."""

    number: int
    partition: int
    key: str
    position: int
    length: int
    start: int
    end: int


class Order(msgspec.Struct, frozen=True, kw_only=True):
    store: ObjectStoreSettings
    filter: str
    keep: int
    """Matches worth sending, the newest; the others are counted."""
    stretches: list[Stretch]


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    batch_base_offset: int
    batch_end_offset: int
    leader_epoch: int
    codec: int
    producer_id: int
    is_transactional: bool


class Advanced(msgspec.Struct, frozen=True, kw_only=True, tag="advanced"):
    """So many bytes further."""

    size: int
    records: int
    matched: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """A stretch was looked through, or could not be, for `problem`."""

    number: int
    is_missing: bool = False
    """Its object is gone: merged or deleted meanwhile. Whoever planned can plan anew."""
    problem: str | None = None


Line = Found | Advanced | Ended
