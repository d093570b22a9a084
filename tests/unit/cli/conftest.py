import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def plain_interrupt() -> Iterator[None]:
    """Ctrl-C as Python has it: a Spark session of an earlier test leaves a handler of its own behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
