"""Batches to produce: good ones, and those that a broker must refuse."""

import struct
from typing import Any

from crc32c import crc32c
from tests.support.same_as_kafka.pairing import Each
from tests.support.same_as_kafka.world import World

from headrace.records.batch import Codec, codec_named
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord

_LENGTH_AT, _MAGIC_AT, _CRC_AT, _CRC_START, _ATTRIBUTES_AT, _DELTA_AT, _COUNT_AT = 8, 16, 17, 21, 21, 23, 57
_LENGTH_MIN = 14
_HOUR_MS = 3_600_000
_CODECS = [Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def draw_batch(world: World, topic: str, partition: int, *, is_transactional: bool) -> Any:
    """Bytes, or an `Each` where a producer signs them."""
    chance = world.random
    records = [_draw_record(world) for _ in range(chance.choice([1, 1, 2, 5]))]
    codec = chance.choice(_CODECS)
    damage = _draw_damage(world) if world.is_odd(0.15) else None
    if is_transactional:
        damage = None  # Wrong in two ways at once is for the brokers to sort.
    producer = world.focus.producer if is_transactional or chance.random() < 0.3 else None
    if producer is None:
        return _built(world, records, codec, damage, {})
    place = (topic, partition)
    sequence = producer.sequences.get(place, 0)
    world.sent[place] = (producer, sequence)
    # What Kafka says of a transactional batch out of order depends on batches that it has refused before.
    if world.is_odd() and not is_transactional:
        sequence = chance.choice([sequence + 1, max(sequence - 1, 0), 5])
    elif damage is None:
        producer.sequences[place] = sequence + len(records)
    is_transactional = is_transactional and producer.transactional_id is not None

    def signed(producer_id: int, epoch: int) -> bytes:
        signature = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "is_transactional": is_transactional,
        }
        return _built(world, records, codec, damage, signature)

    return Each(signed(producer.ids.ours, producer.epochs.ours), signed(producer.ids.theirs, producer.epochs.theirs))


def _draw_record(world: World) -> NewRecord:
    chance = world.random
    key = chance.choice([None, b"", b"k", f"k{chance.randrange(3)}".encode()])
    value = chance.choice([None, b"", b"v" * chance.randrange(1, 200)])
    late = chance.choice([0, 0, 0, -_HOUR_MS, 10 * _HOUR_MS]) if world.is_odd(0.2) else 0
    return NewRecord(key=key, value=value, timestamp_ms=world.now_ms + late + chance.randrange(100))


def _built(world: World, records: list[NewRecord], codec: int, damage: Any, signature: dict[str, Any]) -> bytes:
    batch = build_batch(records, now_ms=world.now_ms, codec=codec, **signature)
    return bytes(batch) if damage is None else damage(bytearray(batch))


def _draw_damage(world: World) -> Any:
    chance = world.random
    # Drawn once: both brokers get the same damage.
    rest, length = chance.choice((1, 11, 12, 16, 17)), chance.choice((0, 13, 14, 40))
    return chance.choice(
        [
            _wrong_crc,
            _old_magic,
            lambda batch: bytes(batch[: len(batch) // 2]),
            lambda batch: bytes(batch[: len(batch) - 1]),
            lambda batch: bytes(batch[:rest]),
            lambda batch: _changed(batch, ">i", _LENGTH_AT, length),
            lambda batch: _changed(batch, ">b", _MAGIC_AT, 3),
            lambda batch: b"",
            lambda batch: bytes(batch + batch),
            lambda batch: _resealed(batch, ">i", _COUNT_AT, 3),
            lambda batch: _resealed(batch, ">i", _DELTA_AT, 7),
            lambda batch: _resealed(batch, ">h", _ATTRIBUTES_AT, 0x20),
            lambda batch: _resealed(batch, ">h", _ATTRIBUTES_AT, 7),
            lambda batch: _resealed(batch, ">i", _COUNT_AT, 0),
        ]
    )


def _changed(batch: bytearray, layout: str, at: int, value: int) -> bytes:
    """One field changed on its way."""
    struct.pack_into(layout, batch, at, value)
    return bytes(batch)


def is_absurd(batch: bytes) -> bool:
    """Whether no message of any format could begin like this, or its compression is of no kind."""
    if len(batch) <= _MAGIC_AT:
        return False
    is_none = struct.unpack_from(">i", batch, _LENGTH_AT)[0] < _LENGTH_MIN or batch[_MAGIC_AT] > 2
    codec = codec_named(batch)
    return is_none or (codec is not None and codec > Codec.ZSTD)


def _wrong_crc(batch: bytearray) -> bytes:
    batch[_CRC_AT] ^= 0xFF
    return bytes(batch)


def _old_magic(batch: bytearray) -> bytes:
    batch[_MAGIC_AT] = 1
    return bytes(batch)


def _resealed(batch: bytearray, layout: str, at: int, value: int) -> bytes:
    """One field changed, with a CRC that fits."""
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, _CRC_AT, crc32c(bytes(batch[_CRC_START:])))
    return bytes(batch)
