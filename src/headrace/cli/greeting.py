"""What `headrace up` says to a person once every door is open: where to look, what listens, what to try next."""

from collections.abc import Mapping
from typing import Final

_DOORS: Final = {
    "kafka": "any Kafka client",
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


def greeting(endpoints: Mapping[str, tuple[str, int]], *, is_colored: bool) -> str:
    """Empty when there is no console to point to."""
    if "admin" not in endpoints:
        return ""
    addresses = {name: f"{_shown(host)}:{port}" for name, (host, port) in endpoints.items()}

    def bold(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if is_colored else text

    width = max(map(len, addresses.values()))
    doors = [f"  {name:<14} {address:<{width}}  {_DOORS.get(name, '')}" for name, address in addresses.items()]
    console = f"http://{addresses['admin']}/"
    kafka = addresses.get("kafka", _USUAL_KAFKA)
    option = "" if kafka in (_USUAL_KAFKA, "127.0.0.1:9092") else f" --bootstrap {kafka}"
    return "\n".join(
        [
            "",
            f"  {bold('headrace is up')}   console  {bold(console)}",
            "",
            *(line.rstrip() for line in doors),
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
