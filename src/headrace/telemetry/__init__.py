"""What a node says about itself: events on stderr, numbers on /metrics.

Below every package that does work, so it knows none of them: packages hand it their numbers, it renders them.
"""

from headrace.telemetry.logging import Logger, configure_logging, get_logger

__all__ = ["Logger", "configure_logging", "get_logger"]
