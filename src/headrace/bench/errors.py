"""What can go wrong while benchmarking, apart from the broker being slow.

Not in the tree of `headrace.errors`: these never reach a door, so no door needs a mapping for them.
"""


class BenchError(Exception):
    """The benchmark itself could not be carried out."""


class RivalUnavailable(BenchError):
    """A rival cannot be had on this machine; the message says what is missing."""


class RivalFailed(BenchError):
    """A broker did not start, died, or did not answer in time."""


class LoadFailed(BenchError):
    """The load met an error code, a lost record or a dead process: there is no figure to report."""
