"""How a controller proves who it is, and asks nodes for the same: mutual TLS with the cluster's own authority."""

import grpc

from headrace.control.etcd.connection import file_bytes
from headrace.control.settings import ControlSettings


def server_credentials(settings: ControlSettings) -> grpc.ServerCredentials | None:
    """None without `rpc.tls`: on loopback nobody is asked. Files are read once, at the start."""
    if settings.rpc_tls_ca is None or settings.rpc_tls_certificate is None or settings.rpc_tls_key is None:
        return None
    return grpc.ssl_server_credentials(
        [(file_bytes(settings.rpc_tls_key), file_bytes(settings.rpc_tls_certificate))],
        root_certificates=file_bytes(settings.rpc_tls_ca),
        require_client_auth=True,
    )
