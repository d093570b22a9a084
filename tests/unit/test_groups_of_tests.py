"""Tests that share what is dear, a Spark above all, are dealt out to one worker."""

import pytest


@pytest.mark.xdist_group("one-group")
def test_xdist_reads_the_groups(request: pytest.FixtureRequest) -> None:
    """It once did not, and nobody noticed but for the time that it took. Without workers nothing is dealt out."""
    assert request.node.nodeid.endswith("@one-group") == hasattr(request.config, "workerinput")
