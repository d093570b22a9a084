"""Incremental fetch sessions (KIP-227): a consumer names its partitions once and then only what changes.

A response leaves out partitions about which there is nothing new. Sessions are kept in memory, least recently used out
first; a client whose session is gone is told so and starts a full one. They outlive their connections, so three bounds hold
for all of them: how many there are, what one may hold, and what all may hold together. A client that asks for more is served
without a session.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.wire.kafka.fetch import FetchCall, FetchedPartition, FetchedTopic, FetchPartition, FetchTopic

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_SPACE: Final = 2**31 - 1
_PARTITION_BYTES: Final = 400
"""What a partition of a session takes, its name aside: measured, with what the client was told."""
SESSION_BYTES_MAX: Final = 8 * 1024 * 1024
"""Some twenty thousand partitions. An answer that names all of them, with an error each, is no larger."""
SESSIONS_BYTES_MAX: Final = 64 * 1024 * 1024

Key = tuple[str | bytes, int]


class SessionNotFound(Exception):
    """The client names a session we do not (any longer) have."""


class WrongSessionEpoch(Exception):
    """The client's requests and our answers are out of step."""


class OtherTopicNames(Exception):
    """The session knows its topics by name and the client by id, or the other way round."""


@dataclass(slots=True)
class FetchSession:
    id: int
    owner: str
    """Who it was made for: whoever guesses its number hears nothing of what is in it."""
    is_by_id: bool = False
    """Whether its topics are known by id. An answer has room for one of the two only, so the session keeps to it."""
    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """High watermark and log start as the client last heard them."""
    size: int = 0
    """Bytes it takes, about: names come with every partition."""

    def update(self, call: FetchCall) -> None:
        self.add(call.topics)
        for gone in call.forgotten:
            for index in gone.partitions:
                if self.partitions.pop((gone.topic, index), None) is not None:
                    self.size -= _PARTITION_BYTES + len(gone.topic)
                self.told.pop((gone.topic, index), None)

    def add(self, topics: Iterable[FetchTopic]) -> None:
        for topic in topics:
            size = _PARTITION_BYTES + len(topic.topic)
            for partition in topic.partitions:
                key = (topic.topic, partition.index)
                if key not in self.partitions:
                    self.size += size
                self.partitions[key] = partition

    def topics(self) -> list[FetchTopic]:
        by_topic: dict[str | bytes, list[FetchPartition]] = {}
        for (topic, _), partition in self.partitions.items():
            by_topic.setdefault(topic, []).append(partition)
        return [FetchTopic(topic, partitions) for topic, partitions in by_topic.items()]

    def news(self, topics: Iterable[FetchedTopic]) -> list[FetchedTopic]:
        """What the client does not know yet: records, errors, moved watermarks."""
        changed = []
        for topic in topics:
            rows = [row for row in topic.partitions if self._is_news(topic.topic, row)]
            if rows:
                changed.append(FetchedTopic(topic.topic, rows))
        return changed

    def _is_news(self, topic: str | bytes, row: FetchedPartition) -> bool:
        key = (topic, row.index)
        marks = (row.high_watermark, row.log_start)
        is_quiet = not row.records_size and not row.error_code and row.diverging is None
        if is_quiet and self.told.get(key) == marks:
            return False
        if row.error_code:
            self.told.pop(key, None)
        elif key in self.partitions:
            self.told[key] = marks
        # Served last time means asked last next time: no partition starves behind a busy one.
        if row.records_size and key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)
        return True


class FetchSessions:
    def __init__(self, sessions_max: int) -> None:
        self._max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._next_id = 1
        self.size = 0
        """Bytes of all of them, about."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, call: FetchCall, owner: str = "", *, is_by_id: bool = False) -> FetchSession | None:
        """The session this request belongs to, brought up to date; None for a request without one.

        `is_by_id`: the request's version names topics by id.
        """
        if call.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if (former := self._sessions.get(call.session_id)) is not None and former.owner == owner:
                self._drop(call.session_id)
            is_wanted = call.session_epoch == INITIAL_EPOCH and self._max > 0
            return self._create(call, owner, is_by_id=is_by_id) if is_wanted else None
        session = self._sessions.get(call.session_id)
        if session is None or session.owner != owner:
            raise SessionNotFound
        if session.epoch != call.session_epoch:
            raise WrongSessionEpoch
        if session.is_by_id != is_by_id:
            raise OtherTopicNames
        self._sessions.move_to_end(session.id)
        session.epoch = session.epoch % _EPOCH_SPACE + 1
        size_before = session.size
        session.update(call)
        self.size += session.size - size_before
        if session.size > SESSION_BYTES_MAX:
            # Told so, the client asks for all its partitions at once, and gets them without a session.
            self._drop(session.id)
            raise SessionNotFound
        if not session.partitions:
            # As Kafka has it: whoever forgets its last partition is answered once more, without a session.
            self._drop(session.id)
            return None
        self._make_room()
        return session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.size -= session.size

    def _make_room(self) -> None:
        while len(self._sessions) > self._max or self.size > SESSIONS_BYTES_MAX:
            self._drop(next(iter(self._sessions)))

    def _create(self, call: FetchCall, owner: str, *, is_by_id: bool) -> FetchSession | None:
        while self._next_id in self._sessions:
            self._next_id += 1
        session = FetchSession(self._next_id, owner, is_by_id)
        session.add(call.topics)  # There is nothing yet that could be forgotten.
        if session.size > SESSION_BYTES_MAX:
            return None
        self._next_id = self._next_id % _EPOCH_SPACE + 1
        self._sessions[session.id] = session
        self.size += session.size
        self._make_room()
        return session
