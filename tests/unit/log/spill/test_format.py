"""The bytes of a spill file: what goes in comes out, and nothing that is cut short or changed is believed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Corrupted, NewerFormat
from headrace.log.spill.files import SpillFiles
from headrace.log.spill.format import HEADER_SIZE, SpilledBatch, decode_header, decode_rows, encode_head
from headrace.log.wal.format import Entry
from headrace.records.record import read_batch_records

GOLDEN = Path(__file__).parents[3] / "golden" / "spill" / "v1.spill"
RING_ID = bytes(range(16))

rows = st.lists(
    st.builds(
        SpilledBatch,
        st.builds(
            Entry,
            st.binary(min_size=16, max_size=16),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**63 - 1),
            st.integers(-1, 2**31 - 1),
        ),
        st.integers(0, 2**63 - 1),
    ),
    max_size=5,
)
A_ROW = SpilledBatch(Entry(bytes(16), 3, 100, 7, 1), 8192)


def decode(data: bytes) -> list[SpilledBatch]:
    header = decode_header(data)
    return decode_rows(header, data[HEADER_SIZE : HEADER_SIZE + header.table_size])


@given(rows, st.integers(0, 2**63), st.integers(0, 2**63))
def test_header_and_table_round_trip(rows: list[SpilledBatch], start_lsn: int, end_lsn: int) -> None:
    data = encode_head(RING_ID, start_lsn=start_lsn, end_lsn=end_lsn, rows=rows)
    header = decode_header(data)
    assert (header.ring_id, header.start_lsn, header.end_lsn) == (RING_ID, start_lsn, end_lsn)
    assert decode(data + b"batches") == rows


def test_cut_short_at_any_length_is_refused() -> None:
    data = encode_head(RING_ID, start_lsn=0, end_lsn=9000, rows=[A_ROW, A_ROW])
    for length in range(len(data)):
        with pytest.raises(Corrupted):
            decode(data[:length])


def test_a_changed_bit_anywhere_is_refused() -> None:
    data = encode_head(RING_ID, start_lsn=0, end_lsn=9000, rows=[A_ROW])
    for position in range(len(data)):
        with pytest.raises(Corrupted):
            decode(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])


def test_newer_version_is_refused_by_name() -> None:
    with pytest.raises(NewerFormat, match="version 2"):
        decode_header(encode_head(RING_ID, start_lsn=0, end_lsn=0, rows=[], version=2))


def test_the_first_version_is_still_read(tmp_path: Path) -> None:
    """Added to, never rewritten."""
    (tmp_path / "spill-00000000000000000000").write_bytes(GOLDEN.read_bytes())
    spill = SpillFiles(tmp_path, RING_ID, bytes_max=0)
    found = [
        (
            row.entry.partition,
            row.entry.base_offset,
            row.lsn,
            [record.value for record in read_batch_records(row.batch)],
        )
        for row in spill.recover()
    ]
    assert [(each[0], each[1], each[3]) for each in found] == [
        (0, 0, [b"first", b"second"]),
        (1, 0, [b"other partition"]),
        (0, 2, [b"third"]),
    ]
    assert spill.end_lsn > found[-1][2] > found[0][2]
    assert not spill.quarantined
