"""Session tickets: what a returning client shows in order to send before its handshake is complete (0-RTT).

A ticket counts once. Whoever replays the first datagrams of a client shows one that is gone, and has to shake hands in full; what those datagrams
ask for is not done twice. Tickets are in memory: after a restart everybody shakes hands once.
"""

from collections import OrderedDict
from typing import Final

from headrace.quic.peers import Ticket

TICKETS_MAX: Final = 4_096
"""Some kilobyte each. The oldest goes."""


class Tickets:
    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Ticket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, ticket: Ticket) -> None:
        self._kept[ticket.ticket] = ticket
        if len(self._kept) > TICKETS_MAX:
            self._kept.popitem(last=False)

    def take(self, name: bytes) -> Ticket | None:
        return self._kept.pop(name, None)
