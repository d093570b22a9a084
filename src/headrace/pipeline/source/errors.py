"""What a reader of the log can run into, as leaves of the common tree."""

from headrace.errors import Conflict, Invalid, OffsetOutOfRange


class InvalidOption(Invalid):
    """An option of the source or the sink that cannot be meant."""


class TopicRecreated(Conflict):
    """The topic was deleted and created again: its old offsets mean nothing in the new one."""


class DataLost(OffsetOutOfRange):
    """Offsets that a query still wanted are gone, by retention or deletion."""
