"""Who leads what: partitions are spread over brokers by how many each leads already. Pure."""

import heapq
from collections.abc import Mapping

from headrace.errors import NotReady


def spread(count: int, led_by: Mapping[str, int]) -> list[str]:
    """Leaders for `count` partitions, one at a time to the broker that leads fewest, ties to the first by name.

    `led_by` has every broker that may lead. Raises `NotReady` when there is none.
    """
    if count and not led_by:
        raise NotReady("no broker is active that could lead")
    waiting = [(led, name) for name, led in led_by.items()]
    heapq.heapify(waiting)
    chosen = []
    for _ in range(count):
        led, name = waiting[0]
        heapq.heapreplace(waiting, (led + 1, name))
        chosen.append(name)
    return chosen
