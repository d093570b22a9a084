"""How much of a table's past is kept. Imported with the settings, so it imports nothing that takes long."""

from collections.abc import Mapping
from typing import Final

import msgspec

AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
COUNT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which snapshots a branch keeps: the newest so many, and beyond them all that are younger than an age."""

    count: int = 50
    age_ms: int = 0

    def of_table(self, properties: Mapping[str, str]) -> "Retention":
        """What the table's own properties say, which every engine heeds, comes before our settings."""
        return Retention(
            count=max(1, _number(properties.get(COUNT_PROPERTY), self.count)),
            age_ms=_number(properties.get(AGE_PROPERTY), self.age_ms),
        )


DEFAULT_RETENTION: Final = Retention()


def _number(text: str | None, default: int) -> int:
    """Anybody can set a property to anything; a batch must not fail over it."""
    return int(text) if text is not None and text.isdecimal() else default
