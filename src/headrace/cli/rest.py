"""The node's REST API, for commands that need what Kafka's protocol has no words for."""

import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from headrace.errors import Invalid, Rejected, Unavailable

_TIMEOUT_S: Final = 60.0
_PREFIX: Final = "/api/v1"


class RestClient:
    def __init__(self, address: str) -> None:
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc:
            raise Invalid(f"--api {address}: expected http://HOST:PORT")
        self._address = address.rstrip("/")

    def get(self, *path: str | int) -> Any:  # Any: JSON
        """What stands below `data`; `Rejected` with the node's own words for a refusal."""
        below = "/".join(quote(str(part), safe="") for part in path)
        try:
            with urllib.request.urlopen(f"{self._address}{_PREFIX}/{below}", timeout=_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise Rejected(_message(error.read()) or f"the node answered {error.code}") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"no REST API at {self._address}: {reason}") from error


def _message(body: bytes) -> str | None:
    try:
        message: str = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return message


def parse_place(place: str) -> tuple[str, int, int]:
    """TOPIC/PARTITION/OFFSET."""
    topic, _, rest = place.partition("/")
    partition, _, offset = rest.partition("/")
    if not topic or not all(text.isascii() and text.isdigit() for text in (partition, offset)):
        raise Invalid(f"{place}: expected TOPIC/PARTITION/OFFSET")
    return topic, int(partition), int(offset)
