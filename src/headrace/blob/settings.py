"""Where the objects are. Keys are `object_store.*`; credentials come from the usual environment variables."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ObjectStoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object store and how patient to be with it. All need a restart."""

    type: Literal["s3", "gcs", "local", "memory"] = "s3"
    """`local` keeps objects in a directory. `memory` forgets them on exit and is for tests."""

    local_path: Annotated[str, Meta(min_length=1)] = "objects"
    """Directory of the `local` store. Put it on a disk that outlives the node."""

    s3_bucket: str = ""
    """Bucket of the `s3` store; required there."""

    s3_region: Annotated[str, Meta(min_length=1)] = "us-central1"
    """Region to sign requests for. AWS refuses requests signed for another region than the bucket's."""

    s3_endpoint: str | None = None
    """URL of an S3-compatible server. AWS itself needs none."""

    s3_prefix: str = ""
    """Keep everything below this key prefix, so that clusters can share a bucket."""

    s3_path_style: bool = True
    """Put the bucket in the path rather than in the host name. Servers other than AWS want it so."""

    s3_sign_payload: bool = False
    """Also sign the bodies of uploads. Costs a SHA-256 of every byte; TLS and our own CRCs already guard them."""

    gcs_bucket: str = ""
    """Bucket of the `gcs` store; required there."""

    gcs_prefix: str = ""
    """As `object_store.s3.prefix`."""

    gcs_endpoint: str | None = None
    """URL of an emulator. Google itself needs none."""

    request_timeout_ms: Annotated[int, Meta(ge=100, le=600_000)] = 60_000
    """Longest one request may take, whole body included. Slow links with large objects need more."""

    connect_timeout_ms: Annotated[int, Meta(ge=50, le=60_000)] = 5_000
    """Longest a connection may take to come up."""

    retry_count: Annotated[int, Meta(ge=0, le=100)] = 5
    """Times a failed request is tried again before its caller hears of it."""

    retry_backoff_ms: Annotated[int, Meta(ge=1, le=60_000)] = 100
    """Pause before the first retry; doubles each time, with jitter, up to 10 s."""

    circuit_failures: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Failures in a row after which requests fail at once, so that a store that is down is not hammered."""

    circuit_open_ms: Annotated[int, Meta(ge=10, le=600_000)] = 5_000
    """How long they do before one request is let through to see whether the store is back."""

    @property
    def address(self) -> str:
        """Which objects these settings lead to: the same address, the same objects."""
        match self.type:
            case "s3":
                parts: tuple[str, ...] = ("s3", self.s3_endpoint or "aws", self.s3_bucket, self.s3_prefix)
            case "gcs":
                parts = ("gcs", self.gcs_endpoint or "google", self.gcs_bucket, self.gcs_prefix)
            case "local":
                parts = ("local", str(Path(self.local_path).absolute()))
            case "memory":
                parts = ("memory",)
        return " ".join(parts)
