"""TLS of the gRPC port: the certificate of the admin listener, read again when its files change."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

log = structlog.get_logger(__name__)


class GrpcTls:
    """`name_of` gives the principal of a client's certificate (PEM); it raises `Denied` for one that means nobody here."""

    def __init__(
        self, certificate: Path, key: Path, *, authorities: Path | None, name_of: Callable[[bytes], str]
    ) -> None:
        """With `authorities` clients must show a certificate that one of them has signed."""
        self._files = (certificate, key)
        self._authorities = authorities
        self._name_of = name_of
        self._seen = self._stamps()

    def credentials(self) -> Any:  # Any: grpc has no types
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._fresh, require_client_authentication=self._authorities is not None
        )

    def principal_of(self, proved: Mapping[str, Sequence[bytes]]) -> str | None:
        certificates = proved.get("x509_pem_cert") if self._authorities is not None else None
        return self._name_of(certificates[0]) if certificates else None

    def _fresh(self) -> Any:  # Any: as above
        """Asked at each handshake, in a thread of gRPC's; None is what there was."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self._seen = stamps
        try:
            return self._configuration()
        except OSError as error:
            log.error("certificate not read, the former one stays", listener="grpc", reason=str(error))
            return None

    def _configuration(self) -> Any:  # Any: as above
        certificate, key = (path.read_bytes() for path in self._files)
        authorities = None if self._authorities is None else self._authorities.read_bytes()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authorities)

    def _stamps(self) -> list[tuple[int, int] | None]:
        found: list[tuple[int, int] | None] = []
        for path in self._files:
            try:
                stat = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_size))
        return found
