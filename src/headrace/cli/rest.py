"""The node's REST API, for commands that need what Kafka's protocol has no words for.

Who asks is said by a token: in the file that `--token-file` names, or in the environment. The owner of the data directory needs none.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from headrace.clients.connection import words_of
from headrace.errors import (
    AlreadyExists,
    Concurrent,
    Denied,
    GroupNotFound,
    HeadraceError,
    Invalid,
    NotEmpty,
    Rejected,
    ResourceExists,
    ResourceNotFound,
    TopicNotFound,
    TransactionNotFound,
    Unauthenticated,
    Unavailable,
)

TOKEN_VARIABLE: Final = "HEADRACE_API_TOKEN"
CA_VARIABLE: Final = "HEADRACE_API_CA"
_TIMEOUT_S: Final = 60.0
_PREFIX: Final = "/api/v1"
_SOCKET_NAME: Final = "admin.sock"
_PAGE: Final = 1000

_BY_REASON: Final[Mapping[str, type[HeadraceError]]] = {
    "TOPIC_ALREADY_EXISTS": AlreadyExists,
    "DUPLICATE_RESOURCE": ResourceExists,
    "UNKNOWN_TOPIC_OR_PARTITION": TopicNotFound,
    "GROUP_ID_NOT_FOUND": GroupNotFound,
    "NON_EMPTY_GROUP": NotEmpty,
    "TRANSACTIONAL_ID_NOT_FOUND": TransactionNotFound,
    "RESOURCE_NOT_FOUND": ResourceNotFound,
    "CONCURRENT_TRANSACTIONS": Concurrent,
}
"""Kafka's name of a refusal as the error that it was; others are told apart by their status."""
_BY_STATUS: Final[Mapping[int, type[HeadraceError]]] = {
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
    HTTPStatus.GATEWAY_TIMEOUT: Unavailable,
}


class RestClient:
    def __init__(
        self, address: str, *, local: Path | None = None, token_file: Path | None = None, denial: str | None = None
    ) -> None:
        """`local` is the data directory of a node on this machine, instead of an address.

        `denial` says that somebody is not allowed, for commands that say so in the same words whichever way they go; the node's
        own words unless given.
        """
        self._denial = denial
        self._local = local
        self._token = "" if local is not None else _read_token(token_file)
        split = urlsplit(address)
        if local is None and (split.scheme not in ("http", "https") or not split.netloc):
            raise Invalid(f"--api {address}: expected http://HOST:PORT")
        self._address = address.rstrip("/") if local is None else str(local)
        self._place = split.netloc
        self._below = split.path.rstrip("/")
        self._is_tls = split.scheme == "https"

    def get(self, *path: str | int, query: str = "") -> Any:  # Any: JSON
        """What stands below `data`; for a refusal the error that it was, with the node's own words."""
        return self._ask("GET", path, None, query)

    def pages(self, *path: str | int, **query: object) -> Iterator[Any]:  # Any: JSON
        """Every page of a list, as the API gives it. `Unavailable` where a broker that has rows of it did not answer: a list that
        lacks them would pass for one that has all."""
        token = ""
        while True:
            page = self.get(*path, query=urlencode({**query, "page_size": _PAGE, "page_token": token}))
            if left_out := page.get("other_brokers"):
                raise Unavailable(f"no answer from {', '.join(each['broker'] for each in left_out)}")
            yield page
            token = page["next_page_token"]
            if not token:
                return

    def post(self, *path: str | int, body: object, query: str = "") -> Any:  # Any: JSON
        return self._ask("POST", path, msgspec.json.encode(body), query)

    def patch(self, *path: str | int, body: object) -> Any:  # Any: JSON
        return self._ask("PATCH", path, msgspec.json.encode(body), "")

    def delete(self, *path: str | int, query: str = "") -> Any:  # Any: JSON
        return self._ask("DELETE", path, None, query)

    def _ask(self, method: str, path: Sequence[str | int], body: bytes | None, query: str) -> Any:  # Any: JSON
        target = f"{self._below}{_PREFIX}/" + "/".join(quote(str(part), safe="") for part in path)
        headers = {"content-type": "application/json"} if body is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            with self._connected() as connection:
                connection.request(method, target + (f"?{query}" if query else ""), body=body, headers=headers)
                answer = connection.getresponse()
                status, found = answer.status, answer.read()
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"{self._address}: {words_of(error)}; HEADRACE_API_CA names the file of who signed it"
            ) from error
        except (OSError, HTTPException) as error:
            reason = words_of(error) if isinstance(error, OSError) else error
            raise Unavailable(f"no REST API at {self._address}: {reason}") from error
        try:
            return _data(status, found)
        except Denied as error:
            if self._denial is None or isinstance(error, Unauthenticated):
                raise
            raise Denied(self._denial) from error

    @contextlib.contextmanager
    def _connected(self) -> Iterator[HTTPConnection]:
        connection: HTTPConnection
        if self._local is not None:
            connection = _Local(self._local)
        elif self._is_tls:
            context = ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE))
            connection = HTTPSConnection(self._place, timeout=_TIMEOUT_S, context=context)
        else:
            connection = HTTPConnection(self._place, timeout=_TIMEOUT_S)
        with contextlib.closing(connection):
            yield connection


class _Local(HTTPConnection):
    """Through the socket in a data directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._directory = directory

    def connect(self) -> None:
        # By way of the open directory: the address of a socket has no more than 107 bytes.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(_TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{directory}/{_SOCKET_NAME}")
        finally:
            os.close(directory)


def _read_token(path: Path | None) -> str:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"--token-file {path}: {error}") from error
    if not token or not token.isprintable():
        raise Invalid(f"--token-file {path}: there is no token in it")
    return token


def _data(status: int, body: bytes) -> Any:  # Any: JSON
    try:
        answer = msgspec.json.decode(body)
        if answer["success"]:
            return answer["data"]
        message, reason = answer["error"]["message"], answer["error"]["reason"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise Rejected(f"the node answered {status}") from error
    if status == HTTPStatus.UNAUTHORIZED:
        raise Unauthenticated(f"{message}. Commands take a token from --token-file or {TOKEN_VARIABLE}")
    if answer.get("leader_hint"):
        # Said and not followed: whoever gave us a token gave it for the address that they named.
        message = f"{message}; its API is at {answer['leader_hint']}"
    raise _BY_REASON.get(reason, _BY_STATUS.get(status, Rejected))(message)


def parse_place(place: str) -> tuple[str, int, int]:
    """TOPIC/PARTITION/OFFSET."""
    topic, _, rest = place.partition("/")
    partition, _, offset = rest.partition("/")
    if not topic or not all(text.isascii() and text.isdigit() for text in (partition, offset)):
        raise Invalid(f"{place}: expected TOPIC/PARTITION/OFFSET")
    return topic, int(partition), int(offset)
