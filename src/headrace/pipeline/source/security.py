"""How the source and the sink reach brokers that ask who they are: TLS and a login.

Options say all but secrets: Spark shows options in plans, logs and its web page, and sends them to executors. Secrets come from a file of
properties, as Kafka's own tools take it, that each process which connects reads when it does: `kafka.client.config` names it, or
HEADRACE_CLIENT_CONFIG in the environment.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.errors import Invalid
from headrace.pipeline.source.errors import InvalidOption

if TYPE_CHECKING:
    from headrace.wire.kafka.client_properties import ClientSecurity

FILE_OPTION: Final = "kafka.client.config"
VARIABLE: Final = "HEADRACE_CLIENT_CONFIG"
_PREFIX: Final = "kafka."
_SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")


class BrokerSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """What options say of it. Goes to executors, and holds no secret."""

    properties: dict[str, str] = {}
    """In Kafka's names. They win over the file's."""
    file: str | None = None

    def read(self) -> "ClientSecurity":
        """With the secrets, for one connection. Raises `Invalid`."""
        # Who reads a bucket alone has no use for it, and pays for each import.
        from headrace.wire.kafka.client_properties import security_of

        name = self.file or os.environ.get(VARIABLE)
        return security_of({**_read_file(name), **self.properties})


def is_security(name: str) -> bool:
    return name == FILE_OPTION or name.startswith(_SECURITY)


def parse_security(given: Mapping[str, str]) -> BrokerSecurity:
    """Of options in lower case; raises `InvalidOption`. The file is not looked at: it need not be there where a query is planned."""
    properties = {
        name.removeprefix(_PREFIX): value.strip() for name, value in given.items() if name.startswith(_SECURITY)
    }
    if properties:
        _check(properties)
    return BrokerSecurity(properties=properties, file=given.get(FILE_OPTION))


def _check(properties: Mapping[str, str]) -> None:
    from headrace.wire.kafka.client_properties import security_of

    try:
        # The mechanism may be in the file.
        security_of({"sasl.mechanism": "SCRAM-SHA-512", **properties})
    except Invalid as error:
        raise InvalidOption(f"kafka.{error}") from error


def _read_file(name: str | None) -> dict[str, str]:
    if not name:
        return {}
    from headrace.wire.kafka.client_properties import parse_properties

    try:
        return parse_properties(Path(name).read_text(encoding="utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Invalid(f"{FILE_OPTION} {name}: {reason}") from error
