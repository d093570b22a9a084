"""The promise of the log, checked from outside: what was acknowledged or read stays, where it is, as it is, once.

`History` is the ledger: producers note what they were promised, consumers what they saw, and `verify` compares both
with everything a node serves. It knows nothing about how the node keeps its promise. Every value is unique, and a value
is sent again only by an idempotent producer, so each may stand in the log at most once.
"""

import threading
from collections import Counter
from collections.abc import Iterable

from tests.support.raw_kafka import RawKafka

from headrace.records.record import Record

Place = tuple[str, int]
VIOLATIONS_KEPT = 20


class History:
    """Thread-safe; the checks that need no node are made as things are noted."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.violations: list[str] = []
        self.verified_count = 0
        self._lock = threading.Lock()
        self._promised: dict[Place, dict[int, bytes]] = {}
        self._acked_count = 0
        self._read_count = 0

    @property
    def acked_count(self) -> int:
        return self._acked_count

    @property
    def read_count(self) -> int:
        return self._read_count

    def note_acked(self, topic: str, partition: int, base_offset: int, values: Iterable[bytes]) -> None:
        with self._lock:
            for index, value in enumerate(values):
                self._hold((topic, partition), base_offset + index, value, "acknowledged")
                self._acked_count += 1

    def note_read(self, topic: str, partition: int, records: Iterable[Record]) -> None:
        with self._lock:
            for record in records:
                self._hold((topic, partition), record.offset, record.value or b"", "read")
                self._read_count += 1

    def note_violation(self, what: str) -> None:
        with self._lock:
            self._violated(what)

    def _hold(self, place: Place, offset: int, value: bytes, how: str) -> None:
        promised = self._promised.setdefault(place, {})
        known = promised.setdefault(offset, value)
        if known != value:
            self._violated(f"{_name(place)} offset {offset}: {how} {value!r}, but it was {known!r} before")

    def _violated(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(what)

    def fork(self) -> "History":
        """The same promises, kept apart from now on."""
        fork = History(self.seed)
        with self._lock:
            fork._promised = {place: dict(promised) for place, promised in self._promised.items()}
        return fork

    def promised(self, place: Place) -> dict[int, bytes]:
        with self._lock:
            return dict(self._promised.get(place, {}))

    # -- against a node ------------------------------------------------------------------------------------------

    def verify(self, address: str, places: Iterable[Place], *, may_miss: bool = False) -> None:
        """Read everything the node has, and hold it against everything it ever promised.

        With `may_miss` records may be gone (the disk rotted), but what is there must be right.
        """
        with RawKafka(address, timeout=30.0) as client:
            for place in places:
                # Taken before the scan: what is promised during it may lie behind the end that the scan saw.
                with self._lock:
                    promised = dict(self._promised.get(place, {}))
                try:
                    records = client.read_all(*place, may_miss=may_miss)
                except TimeoutError:
                    # Some of what a broken node does looks like this: it announces more bytes than it sends.
                    self.note_violation(f"{_name(place)}: what was promised could not be read for 30 s")
                    return
                self._compare(place, promised, records, may_miss=may_miss)

    def compare_below(self, place: Place, end: int, records: list[Record]) -> None:
        """Hold what somebody else than the node has of a partition up to `end` against everything promised."""
        with self._lock:
            promised = {offset: value for offset, value in self._promised.get(place, {}).items() if offset < end}
        self._compare(place, promised, records, may_miss=False)

    def _compare(self, place: Place, promised: dict[int, bytes], records: list[Record], *, may_miss: bool) -> None:
        found = {record.offset: record.value or b"" for record in records}
        if len(found) != len(records):
            self.note_violation(f"{_name(place)}: an offset was served twice in one scan")
        for value, count in Counter(found.values()).items():
            if count > 1:
                offsets = [offset for offset, each in found.items() if each == value]
                self.note_violation(f"{_name(place)}: {value!r} stands there {count} times, at {offsets[:5]}")
        with self._lock:
            for offset, value in promised.items():
                present = found.get(offset)
                if present is None:
                    if not may_miss:
                        self._violated(f"{_name(place)} offset {offset}: {value!r} was promised and is gone")
                elif present != value:
                    self._violated(f"{_name(place)} offset {offset}: {value!r} was promised, {present!r} is there")
            self.verified_count += len(found)
        # What a scan has served is read: it may not vanish later either.
        self.note_read(*place, records)

    def check(self, log: str = "") -> None:
        assert not self.violations, (
            f"seed {self.seed}: {len(self.violations)} broken promises\n" + "\n".join(self.violations) + f"\n{log}"
        )


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
