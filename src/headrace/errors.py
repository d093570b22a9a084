"""One tree of errors, for every layer and every door.

    HeadraceError
      Rejected                 wrong request; unchanged, it will fail again
        Invalid                  malformed or out of bounds
          MalformedRequest         bytes that do not parse
          CorruptBatch             CRC or layout of a record batch is wrong
            InvalidRecords           the bytes are sound, what they say is against the rules
              TransformFailed          the topic's Wasm module did not take them
          TooLarge                 record, batch or frame beyond its limit
          InvalidName              a topic, group or setting name breaks the rules
          InvalidTimestamp         a record's time is out of the topic's bounds
          UnsupportedCompression   a codec that this request version or topic does not allow
          UnsupportedOperation     this node does not do that, and says so
        NotFound
          TopicNotFound            and TopicIdNotFound
          PartitionNotFound, GroupNotFound, TransactionNotFound, LeaseNotFound
          ResourceNotFound         a user, an access rule, a pipeline, an operation
        Conflict                 the request contradicts what is already true
          AlreadyExists, ResourceExists, NotEmpty, OutOfOrderSequence, ProducerFenced, UnknownProducer, StaleEpoch,
          TransactionNotOpen, AgainstPolicy
        OffsetOutOfRange         below log start, or past the end
        RevisionCompacted        a watch asks for a past that is no longer kept
        Denied
          TopicDenied, TransactionDenied
          Unauthenticated          nobody knows who asks, and that is asked here
      Unavailable              right request, wrong moment or place; retriable
        Overloaded, TimedOut, UnknownEpoch, Concurrent, StoreUnavailable
        Elsewhere                another broker has it
          NotLeader, NotCoordinator
        NotReady                 still starting, loading or stopping
          CoordinatorLoading
      Fault                    we are broken; stop and say so
        StorageFailed, StorageFull, NewerFormat
        Corrupted
          DamagedRecords           some records cannot be read any more; all others can

Doors map these in their `errors.py`; the nearest mapped ancestor wins.
"""

import errno
import os
from collections.abc import Iterable, Sequence


class HeadraceError(Exception):
    """Anything headrace itself raises."""


class Rejected(HeadraceError):
    """Wrong request; unchanged, it will fail again."""


class Invalid(Rejected):
    """Malformed or out of bounds."""


class MalformedRequest(Invalid):
    """Bytes that do not parse."""


class CorruptBatch(Invalid):
    """CRC or layout of a record batch is wrong."""


class InvalidRecords(CorruptBatch):
    """A batch whose bytes are sound and whose content is against the rules: sending it again will not help."""

    def __init__(self, message: str, failures: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        """Records at fault, by their place in the batch, each with the reason."""


class TransformFailed(InvalidRecords):
    """The topic's Wasm module trapped, broke a limit, or made something of the records that the log does not take."""


class TooLarge(Invalid):
    """A record, batch or frame beyond its limit."""


class InvalidName(Invalid):
    """A topic, group or setting name breaks the rules."""


class InvalidTimestamp(Invalid):
    """A record's time is outside what its topic accepts."""


class UnsupportedCompression(Invalid):
    """A codec that this request version or topic does not allow."""


class UnsupportedOperation(Invalid):
    """This node does not do that, and says so."""


class NotFound(Rejected):
    """Something named in the request does not exist."""


class TopicNotFound(NotFound):
    """No topic of that name or id."""


class TopicIdNotFound(TopicNotFound):
    """No topic of that id: the client knows one that was deleted, or does not know of a new one yet."""


class PartitionNotFound(NotFound):
    """The topic exists, the partition does not."""


class GroupNotFound(NotFound):
    """No consumer group of that name."""


class TransactionNotFound(NotFound):
    """No transactional id of that name."""


class ResourceNotFound(NotFound):
    """No user, access rule, pipeline, operation or broker of that name; neither a topic, a group nor a transaction."""


class LeaseNotFound(NotFound):
    """The lease has run out, was revoked, or never was."""


class ObjectNotFound(NotFound):
    """No object of that key in the object store."""


class Conflict(Rejected):
    """The request contradicts what is already true."""


class AlreadyExists(Conflict):
    """It is there already."""


class ResourceExists(AlreadyExists):
    """There is one of that name already, and it is no topic."""


class NotEmpty(Conflict):
    """It still has members or records."""


class OutOfOrderSequence(Conflict):
    """An idempotent producer skipped or repeated a sequence number."""


class ProducerFenced(Conflict):
    """A newer instance of this producer has taken over."""


class UnknownProducer(Conflict):
    """No such producer id, or its state has expired."""


class TransactionNotOpen(Conflict):
    """The partition is no part of an open transaction of this producer."""


class StaleEpoch(Conflict):
    """The request names an older epoch than the one in force."""


class AgainstPolicy(Conflict):
    """The topic's `cleanup.policy` rules it out."""


class OffsetOutOfRange(Rejected):
    """Below the log start, or past the end."""


class RevisionCompacted(Rejected):
    """A watch asks for a past that is no longer kept: read anew and watch from there."""


class Denied(Rejected):
    """Not allowed to do that."""


class TopicDenied(Denied):
    """Not allowed to do that to this topic."""


class Unauthenticated(Denied):
    """Whoever asks has not said who they are, or could not prove it."""


class TransactionDenied(Denied):
    """Not allowed to write under this transactional id."""


class Unavailable(HeadraceError):
    """Right request, wrong moment or place; retriable."""


class Elsewhere(Unavailable):
    """Another broker has it: `broker` names that one, and is empty where nobody is known to."""

    def __init__(self, message: str = "", *, broker: str = "") -> None:
        super().__init__(message)
        self.broker = broker


class NotLeader(Elsewhere):
    """Another broker leads this partition, or nobody does."""


class NotReady(Unavailable):
    """Still starting, loading or stopping."""


class NotCoordinator(Elsewhere):
    """Another broker looks after this group or transaction."""


class CoordinatorLoading(NotReady):
    """What an earlier life wrote about groups or transactions is still being read."""


class Overloaded(Unavailable):
    """Out of budget for now; the caller should slow down."""


class TimedOut(Unavailable):
    """The deadline passed; what was asked may still happen."""


class OutcomeUnknown(Unavailable):
    """What was asked may have happened, or may still happen: nobody said. Read what is true, then decide; never just repeat."""


class UnknownEpoch(Unavailable):
    """The request names a newer epoch than we have heard of."""


class Concurrent(Unavailable):
    """Something else is changing the same thing; try again."""


class StoreUnavailable(Unavailable):
    """The object store did not answer, or not in time, or with an error of its own."""


class Fault(HeadraceError):
    """We are broken; stop and say so."""


class StorageFailed(Fault):
    """A write, flush or read of the disk or the object store failed."""


class StorageFull(Fault):
    """No space left."""


class Corrupted(Fault):
    """Bytes at rest are not what was written."""


class DamagedRecords(Corrupted):
    """Some records cannot be read any more, and reading again will not help; all others can be."""


class NewerFormat(Fault):
    """Bytes at rest were written by a newer headrace than this one."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for a name that is nearly right, and nothing for one that is not."""
    # Imported here: every worker of Spark imports this module, and none of them suggests anything.

    from difflib import get_close_matches  # for who made a mistake: Spark's processes start by the dozen, and import us

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def cannot_listen(key: str, text: str, *, number: int | None, words: str | None) -> Fault:
    """`key` is the setting that names `text`. In the system's own words where it gave a number: asyncio's, ZeroMQ's and gRPC's name the
    address once more."""
    reason = os.strerror(number) if number is not None and number > 0 else words
    way_on = f"; is another node running? {key} names another address" if number == errno.EADDRINUSE else ""
    return Fault(f"{key}: cannot listen on {text}: {reason}{way_on}")
