"""Are there any credentials for S3? Asked before the first request, which may otherwise wait minutes to say no.

Without variables obstore asks the machine's metadata service for a role's credentials. Where there is no such service the
address often swallows what is sent there, and each of our retries would wait out a whole request's time.
"""

import asyncio
import http.client
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from headrace.blob.refusals import S3_CREDENTIALS, no_credentials
from headrace.blob.settings import ObjectStoreSettings
from headrace.errors import Invalid, StoreUnavailable

_METADATA_SECONDS: Final = 2.0
"""It is on the same machine: it answers in milliseconds or is not there."""
_METADATA: Final = "http://169.254.169.254"
_KEY: Final = "AWS_ACCESS_KEY_ID"
_SECRET: Final = "AWS_SECRET_ACCESS_KEY"
_GIVEN: Final = (
    _KEY,
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
"""Any of these, and obstore does not need the metadata service."""


def check_pair(environ: Mapping[str, str] = os.environ) -> None:
    """Half of a key pair is a slip, whatever else there may be."""
    for there, missing in ((_KEY, _SECRET), (_SECRET, _KEY)):
        if environ.get(there) and not environ.get(missing):
            raise Invalid(f"{there} is set and {missing} is not: {S3_CREDENTIALS}")


async def require_credentials(settings: ObjectStoreSettings, environ: Mapping[str, str] = os.environ) -> None:
    """`StoreUnavailable`, within seconds, when nothing would give any."""
    if settings.type != "s3" or any(environ.get(name) for name in _GIVEN):
        return
    if not await asyncio.to_thread(_has_metadata, environ.get("AWS_METADATA_ENDPOINT") or _METADATA):
        raise StoreUnavailable(no_credentials(settings))


def _has_metadata(address: str) -> bool:
    host = urlsplit(address).netloc
    connection = http.client.HTTPConnection(host, timeout=_METADATA_SECONDS)
    try:
        connection.request("PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return connection.getresponse().status < http.client.BAD_REQUEST
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
