"""What a client has to say to be let in, from a file of properties as Kafka's own tools take it, in librdkafka's names.

security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice
sasl.password=...

A bearer's token (`sasl.mechanism=OAUTHBEARER`) is in a file that `sasl.oauthbearer.token.endpoint.url=file:PATH` names, as for
Kafka's own tools.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from headrace.errors import Invalid
from headrace.wire.kafka.client_properties import parse_properties

VARIABLE: Final = "HEADRACE_CLIENT_CONFIG"
"""Names the file for every command."""
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"


def client_properties() -> dict[str, str]:
    """Empty where no file was named."""
    name = os.environ.get(VARIABLE)
    return {} if not name else read_properties(Path(name))


def read_properties(path: Path) -> dict[str, str]:
    """Raises `Invalid` for what is no property; what a property means is its reader's business."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot read the client properties in {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Invalid(f"cannot read the client properties in {path}: {error}") from error
    return parse_properties(text, str(path))


def read_token(properties: Mapping[str, str]) -> str:
    """Read anew for each login: whoever issues tokens writes the next one there. Raises `Invalid`."""
    url = properties.get(TOKEN_URL, "")
    if not url.startswith("file:"):
        raise Invalid(f"{TOKEN_URL}: expected file:PATH, of a file with a token")
    path = Path(unquote(urlsplit(url).path))
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        # Not the error's own words: those of the second kind have some of the token in them.
        raise Invalid(f"cannot read the token in {path}: {type(error).__name__}") from error
