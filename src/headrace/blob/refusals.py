"""What a remote store said, in one line for who runs the node: what is wrong, and the setting or variable that mends it.

obstore hands on its own sentence with the server's XML in it. What is not recognised keeps its words, on one line.
"""

import re
from collections.abc import Callable
from typing import Final

from headrace.blob.settings import ObjectStoreSettings

S3_CREDENTIALS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role that may use the bucket"
)
GCS_CREDENTIALS: Final = "set GOOGLE_APPLICATION_CREDENTIALS to the key file of a service account"

_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_METADATA: Final = ("169.254.169.254", "169.254.170.2", "/latest/api/token", "metadata.google.internal")
"""Where obstore asks for credentials when nobody gave it any."""


def explain(text: str, settings: ObjectStoreSettings) -> str:
    """`text` is obstore's, of a request that failed."""
    # Below its sentence the library prints the error as its language shows it, over dozens of lines.
    sentence, *_ = text.split("\n\nDebug source:")
    if any(place in sentence for place in _METADATA):
        return no_credentials(settings)
    code, message = _found(_CODE, sentence), _found(_MESSAGE, sentence)
    if (known := _REASONS.get(code)) is not None:
        return known(settings, message)
    if "incorrectly configured region" in sentence:
        return _wrong_region(settings, "")
    if "HTTP error: error sending request" in sentence:
        return _no_connection(settings)
    status = _found(_STATUS, sentence)
    if status.startswith(("401", "403")):
        return _denied(settings, message or status)
    return f"{status}: {code}: {message}" if code else " ".join(sentence.split())


def is_without_bucket(text: str) -> bool:
    """Whether nothing is there because the bucket is not: an outage, and no word about any object."""
    return _found(_CODE, text) == "NoSuchBucket"


def no_credentials(settings: ObjectStoreSettings) -> str:
    return f"no credentials for the {settings.type} store: {_how(settings)}"


def _how(settings: ObjectStoreSettings) -> str:
    return GCS_CREDENTIALS if settings.type == "gcs" else S3_CREDENTIALS


def _bucket(settings: ObjectStoreSettings) -> str:
    return settings.gcs_bucket if settings.type == "gcs" else settings.s3_bucket


def _no_bucket(settings: ObjectStoreSettings, message: str) -> str:
    return f"there is no bucket {_bucket(settings)!r}: create it, or change object_store.{settings.type}.bucket"


def _wrong_region(settings: ObjectStoreSettings, message: str) -> str:
    said = f" ({message.rstrip('.')})" if message else ""
    return (
        f"bucket {_bucket(settings)!r} is in another region than object_store.s3.region, {settings.s3_region!r}{said}"
    )


def _no_connection(settings: ObjectStoreSettings) -> str:
    endpoint = settings.gcs_endpoint if settings.type == "gcs" else settings.s3_endpoint
    where = endpoint or ("Google" if settings.type == "gcs" else "AWS")
    return f"no connection to {where}: is the store up, and object_store.{settings.type}.endpoint right?"


def _unknown_key(settings: ObjectStoreSettings, message: str) -> str:
    return "the store does not know this access key: set AWS_ACCESS_KEY_ID to one of its own"


def _wrong_secret(settings: ObjectStoreSettings, message: str) -> str:
    return "the secret does not belong to the access key: AWS_SECRET_ACCESS_KEY is wrong"


def _expired(settings: ObjectStoreSettings, message: str) -> str:
    return "the session has expired or was revoked: renew AWS_SESSION_TOKEN with its key and secret"


def _wrong_clock(settings: ObjectStoreSettings, message: str) -> str:
    return "the store's clock and this machine's are too far apart to sign requests"


def _denied(settings: ObjectStoreSettings, message: str) -> str:
    return f"these credentials may not use bucket {_bucket(settings)!r} ({message.rstrip('.')}): {_how(settings)}"


_REASONS: Final[dict[str, Callable[[ObjectStoreSettings, str], str]]] = {
    "InvalidAccessKeyId": _unknown_key,
    "SignatureDoesNotMatch": _wrong_secret,
    "ExpiredToken": _expired,
    "InvalidToken": _expired,
    "RequestTimeTooSkewed": _wrong_clock,
    "AccessDenied": _denied,
    "NoSuchBucket": _no_bucket,
    "AuthorizationHeaderMalformed": _wrong_region,
    "PermanentRedirect": _wrong_region,
    "IllegalLocationConstraintException": _wrong_region,
}
"""By the code in a server's XML, as S3 documents them and as others copy them."""


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return " ".join(match[1].split()) if match else ""
