"""Our errors in Logjam's two words: a message that is wrong is a bad request, everything else was accepted.

The reply is given before a message is stored, so what fails later is counted, never answered.
"""

from headrace.errors import Rejected
from headrace.wire.logjam.messages import ACCEPTED, BAD_REQUEST


def status_of(error: BaseException | None) -> bytes:
    return BAD_REQUEST if isinstance(error, Rejected) else ACCEPTED
