"""What `headrace up` and `headrace cluster up` say to a person once every door is open: where to look, what listens, what to try next."""

from collections.abc import Mapping
from typing import Final

_DOORS: Final = {
    "kafka": "any Kafka client",
    "quic": "Kafka over QUIC, HTTP/3 (UDP)",
    "rustlog": "RustLog, JSON over TCP",
    "mlog": "mlog",
    "logjam_router": "Logjam agents (ROUTER)",
    "logjam_pull": "Logjam agents (PULL)",
    "logjam_pub": "Logjam forwarding (PUB)",
    "logjam_live": "Logjam live stream",
    "grpc": "the same API over gRPC",
    "admin": "console, REST API, /metrics, /health",
}
_USUAL_KAFKA: Final = "localhost:9092"


def greeting(
    endpoints: Mapping[str, tuple[str, int]],
    *,
    is_colored: bool,
    quic_fingerprint: str | None = None,
    is_tls: bool = False,
    first_login: str = "",
) -> str:
    """Empty when there is no console to point to. `first_login` is the address where the first user is made."""
    if "admin" not in endpoints:
        return ""
    addresses = {name: f"{_shown(host)}:{port}" for name, (host, port) in endpoints.items()}

    def bold(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if is_colored else text

    width = max(map(len, addresses.values()))
    doors = [f"  {name:<14} {address:<{width}}  {_DOORS.get(name, '')}" for name, address in addresses.items()]
    console = f"{'https' if is_tls else 'http'}://{addresses['admin']}/"
    first = ["  There is no user yet. Make the first one here:", f"    {bold(first_login)}", ""] if first_login else []
    option = _bootstrap_option(addresses.get("kafka", _USUAL_KAFKA))
    return "\n".join(
        [
            "",
            f"  {bold('headrace is up')}   console  {bold(console)}",
            "",
            *first,
            *(line.rstrip() for line in doors),
            *([] if quic_fingerprint is None else ["", f"  QUIC certificate, SHA-256: {quic_fingerprint}"]),
            "",
            "  Next, in another terminal:",
            f"    headrace topic create orders --partitions 3{option}",
            f"    echo hello | headrace produce orders{option}",
            f"    headrace consume orders --from-beginning --max 1{option}",
            "",
            "  Ctrl-C stops it, and uploads what only this disk has.",
            "",
        ]
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def cluster_greeting(brokers: Mapping[str, Mapping[str, str]]) -> str:
    """Given the `host:port` of each broker's doors."""
    rows = [
        (name, doors.get("kafka", "-"), f"http://{doors['admin']}/" if "admin" in doors else "-")
        for name, doors in brokers.items()
    ]
    widths = [max(len(cell) for cell in column) for column in zip(("broker", "kafka", "console"), *rows, strict=True)]
    table = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (("broker", "kafka", "console"), *rows)
    ]
    option = _bootstrap_option(rows[0][1])
    return "\n".join(
        [
            "",
            "  the cluster is up",
            "",
            *table,
            "",
            "  Next, in another terminal:",
            f"    headrace cluster describe{option}",
            f"    headrace topic create orders --partitions 6{option}",
            f"    echo hello | headrace produce orders{option}",
            "",
            "  Ctrl-C stops it.",
            "",
        ]
    )


def _bootstrap_option(kafka: str) -> str:
    """For commands that would look elsewhere without it."""
    return "" if kafka in (_USUAL_KAFKA, "127.0.0.1:9092") else f" --bootstrap {kafka}"
