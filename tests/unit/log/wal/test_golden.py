"""A ring written by the first version, kept: every later version must read it. Added to, never rewritten."""

from pathlib import Path

from headrace.log.wal.file import RingFile
from headrace.log.wal.recovery import RingReader
from headrace.records.record import read_batch_records

GOLDEN = Path(__file__).parents[3] / "golden" / "wal" / "v1.ring"
CAPACITY = 1024 * 1024 + 8192


def test_the_first_version_is_still_read(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.write_bytes(GOLDEN.read_bytes())
    file = RingFile(ring, capacity=CAPACITY)
    reader = RingReader(file)
    found = [
        (row.entry.partition, row.entry.base_offset, [record.value for record in read_batch_records(row.batch)])
        for row in reader.entries()
    ]
    assert found == [(0, 0, [b"first", b"second"]), (1, 0, [b"other partition"]), (0, 2, [b"third"])]
    assert reader.was_clean
    assert not reader.quarantined
    file.close()
