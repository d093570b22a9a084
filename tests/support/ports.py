"""Ports that stay the test's own while nobody listens on them, as between the end of a node and its next start.

A port that the kernel chose goes to the next who asks for any, as soon as its listener is gone.
"""

import contextlib
import random
import socket
from collections.abc import Iterator

_FIRST, _LAST = 20_000, 32_000
"""Below those that Linux gives to whoever asks for any port, or connects from one."""


@contextlib.contextmanager
def kept_port() -> Iterator[int]:
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), k=1000):
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                # A name that the kernel forgets with its socket; every test process asks for it first.
                claim.bind(f"\0headrace-test-port-{port}")
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield port
            return
    raise AssertionError("all ports are taken")
