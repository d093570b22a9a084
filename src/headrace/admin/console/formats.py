"""Numbers and times as people read them."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_THIN: Final = "\u2009"


def size(value: float) -> str:
    """`1.5 MiB`."""
    amount = float(value)
    for unit in _UNITS:
        if abs(amount) < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    digits = 0 if unit == "B" or amount >= 100 else 1
    return f"{amount:.{digits}f} {unit}"


def count(value: float) -> str:
    """With thin spaces between thousands: exact, and still readable."""
    return f"{int(value):,}".replace(",", _THIN)


def short(value: float) -> str:
    """`12.3k`, for axes and tiles."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}{suffix}"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 10 else f"{value:.2g}"


def duration(ms: float) -> str:
    """`3 d 4 h`: the two largest units."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, above, small, below in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit} {above} {rest} {below}" if rest else f"{whole // unit} {above}"
    return f"{whole} s"


def moment(ms: int | None) -> str:
    """In UTC, to the millisecond. Times are the producers' own, and may be of any year."""
    if ms is None or ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.4f}"


def amount(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return size(value)
        case "ms":
            return f"{value:.1f} ms"
        case "dollars":
            return dollars(value)
        case _:
            return short(value)
