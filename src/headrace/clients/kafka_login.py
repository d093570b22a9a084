"""What a client has to say to be let in, from a file of properties as Kafka's own tools take it, in librdkafka's names.

security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice
sasl.password=...
"""

import os
from pathlib import Path
from typing import Final

from headrace.errors import Invalid
from headrace.wire.kafka.client_properties import parse_properties

VARIABLE: Final = "HEADRACE_CLIENT_CONFIG"
"""Names the file for every command."""


def client_properties() -> dict[str, str]:
    """Empty where no file was named."""
    name = os.environ.get(VARIABLE)
    return {} if not name else read_properties(Path(name))


def read_properties(path: Path) -> dict[str, str]:
    """Raises `Invalid` for what is no property; what a property means is its reader's business."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {path}: {error}") from error
    return parse_properties(text, str(path))
