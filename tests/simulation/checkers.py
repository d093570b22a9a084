"""What was promised, and whether it was kept. Everything here is linear in the length of the run.

`History` (the checker of the chaos tests) holds the log itself to its word: acknowledged or read stays at its offset, once.
`Ledger` adds order per producer, committed offsets, transactions, and what may be lost when a disk was.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from tests.support.checker import History, Place

from headrace.records.record import Record

EVERYTHING: Final = 1 << 62


class Outcome(Enum):
    """Of a transaction, as far as its producer knows."""

    OPEN = "open"
    """Nobody has asked for its end: it may only be aborted."""
    ASKED = "asked"
    """To commit, and the answer did not come: either."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    def __init__(self, name: str, values: list[bytes]) -> None:
        self.name = name
        self.values = values
        self.outcome = Outcome.OPEN
        self.offset: int | None = None
        """Committed to a group as a part of it."""


class Ledger:
    def __init__(self, seed: int) -> None:
        self.history = History(seed)
        self.may_miss: set[str] = set()
        """Topics of which records may be gone: their disk was lost or damaged."""
        self.is_state_lost = False
        """The same of what coordinators know."""
        self.has_rotted = False
        """Batches that nobody was told of may be gone from the middle of what a producer has sent."""
        self.fenced_since_s: float | None = None
        """What is sent from then on may not be acknowledged."""
        self.transactions: dict[str, Transaction] = {}
        self._acked: dict[Place, set[int]] = {}
        self._disowned: dict[Place, list[bytes]] = {}
        self._acked_commits: dict[tuple[str, Place], int] = {}
        self._tried_commits: dict[tuple[str, Place], int] = {}
        self._high_watermarks: dict[tuple[str, Place], int] = {}

    @property
    def violations(self) -> list[str]:
        return self.history.violations

    def violated(self, what: str) -> None:
        self.history.note_violation(what)

    # -- while it runs -------------------------------------------------------------------------------------------

    def note_acked(self, place: Place, base_offset: int, values: Iterable[bytes], *, sent_s: float) -> None:
        held = list(values)
        if self.fenced_since_s is not None and sent_s > self.fenced_since_s:
            self.violated(
                f"{_shown(place)} {base_offset}: acknowledged at {sent_s:.3f} s by a node whose WAL is somebody else's"
            )
        self._acked.setdefault(place, set()).update(range(base_offset, base_offset + len(held)))
        self.history.note_acked(*place, base_offset, held)

    def note_forgotten(self, producer: str, place: Place, values: list[bytes], refused: str) -> None:
        """The first batch that an idempotent producer still waits for was refused as out of order.

        Only rot may bring that about where no acknowledged record may be lost: in what was never acknowledged it takes a
        batch and leaves the one behind it. Then the node must really not have it.
        """
        if place[0] in self.may_miss:
            return
        if not self.has_rotted:
            self.violated(f"{producer}: {refused}")
        self._disowned.setdefault(place, []).extend(values)

    def note_read(self, reader: str, place: Place, records: list[Record], high_watermark: int) -> None:
        self.history.note_read(*place, records)
        before = self._high_watermarks.get((reader, place), 0)
        if high_watermark < before:
            self.violated(f"{_shown(place)}: {reader} saw the end at {before}, and then at {high_watermark}")
        self._high_watermarks[(reader, place)] = high_watermark

    def note_seen_committed(self, place: Place, records: Iterable[Record]) -> None:
        """What a read_committed consumer was given while things still happen."""
        for record in records:
            transaction = self.transactions.get(transaction_of(record.value or b""))
            if transaction is not None and transaction.outcome in (Outcome.ABORTED, Outcome.OPEN):
                self.violated(
                    f"{_shown(place)} {record.offset}: {record.value!r} was served, and is {transaction.outcome}"
                )

    def note_commit_tried(self, group: str, place: Place, offset: int) -> None:
        known = self._tried_commits.get((group, place), -1)
        self._tried_commits[(group, place)] = max(known, offset)

    def note_commit_acked(self, group: str, place: Place, offset: int) -> None:
        self._acked_commits[(group, place)] = max(self.acked_commit(group, place), offset)

    def acked_commit(self, group: str, place: Place) -> int:
        """Whoever asks from now on has to be told this, or more."""
        return self._acked_commits.get((group, place), -1)

    def note_committed(self, group: str, place: Place, offset: int, *, at_least: int) -> None:
        if offset < at_least and not self.is_state_lost:
            self.violated(f"{group} of {_shown(place)}: {at_least} was committed, and now {offset} is")
        if offset > self._tried_commits.get((group, place), -1):
            self.violated(f"{group} of {_shown(place)}: {offset} is committed, which nobody asked for")

    # -- at the end ----------------------------------------------------------------------------------------------

    def verify_log(self, place: Place, records: list[Record]) -> None:
        """Everything the node has of a partition, against everything promised."""
        if place[0] in self.may_miss:
            self._verify_what_is_there(place, records)
        else:
            self.history.compare_below(place, EVERYTHING, records)
        self._verify_order(place, records)
        there = {record.value for record in records}
        for value in self._disowned.get(place, ()):
            if value in there:
                self.violated(f"{_shown(place)}: {value!r} was refused as out of order, and is there")

    def _verify_what_is_there(self, place: Place, records: list[Record]) -> None:
        promised = self.history.promised(place)
        for record in records:
            known = promised.get(record.offset)
            if known is not None and known != record.value:
                self.violated(f"{_shown(place)} {record.offset}: {known!r} was promised, {record.value!r} is there")
        values = [record.value for record in records]
        if len(set(values)) < len(values):
            self.violated(f"{_shown(place)}: a value stands there twice")

    def _verify_order(self, place: Place, records: list[Record]) -> None:
        """Of what was acknowledged. What was given up may still have been under way, and land behind what came after it."""
        last: dict[bytes, int] = {}
        acked = self._acked.get(place, set())
        for record in records:
            if record.offset not in acked:
                continue
            producer, number = (record.value or b"").split()[:2]
            if last.get(producer, -1) >= int(number):
                self.violated(
                    f"{_shown(place)} {record.offset}: {producer!r} wrote {int(number)} before {last[producer]}"
                )
            last[producer] = int(number)

    def verify_transactions(self, seen: Iterable[bytes], committed_offset: int) -> None:
        """`seen` is all that a read_committed consumer is given, `committed_offset` what their group has."""
        if self.is_state_lost:
            return
        values = set(seen)
        last_offset = -1
        for transaction in self.transactions.values():
            count = sum(value in values for value in transaction.values)
            is_whole = count == len(transaction.values)
            name = f"transaction {transaction.name} ({transaction.outcome.value})"
            if count and not is_whole:
                self.violated(f"{name}: {count} of {len(transaction.values)} records are there")
            if transaction.outcome is Outcome.COMMITTED and not is_whole:
                self.violated(f"{name}: gone")
            if transaction.outcome in (Outcome.ABORTED, Outcome.OPEN) and count:
                self.violated(f"{name}: served")
            if count and transaction.offset is not None:
                last_offset = transaction.offset
        if committed_offset != last_offset:
            self.violated(f"transactions have committed offset {last_offset}, and {committed_offset} is there")

    def verify_bucket(self, place: Place, in_bucket: list[Record], in_node: list[Record]) -> None:
        """The bucket alone tells the same as the node: after a clean stop, all of it."""
        if {each.offset: each.value for each in in_bucket} != {each.offset: each.value for each in in_node}:
            missing = {each.offset for each in in_node} ^ {each.offset for each in in_bucket}
            self.violated(f"{_shown(place)}: the bucket and the node differ at {sorted(missing)[:5]}")


def transaction_of(value: bytes) -> str:
    """The name of the transaction that a value belongs to."""
    return value.split()[2].decode() if value.startswith(b"txn-") else ""


def _shown(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
