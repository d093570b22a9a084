"""The QUIC door: opens the port, knows the certificate, and says goodbye.

What comes on streams is another door's protocol: the node hands over how to make a connection of it, as a listener of that door would. So
logins, rights, quotas and limits are those of that door, and this one knows nothing of them.
"""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog
from qh3.quic.configuration import QuicConfiguration

from headrace.broker.services import Broker
from headrace.doors.connection import FramedConnection
from headrace.doors.listening import Listener, advertised_address, listen_key, parse_address
from headrace.doors.parting import part
from headrace.doors.quic.endpoint import Endpoint
from headrace.doors.quic.headers import LongHeader
from headrace.doors.quic.http3 import Application
from headrace.doors.quic.metrics import register_quic_metrics
from headrace.doors.quic.retry import Original
from headrace.doors.quic.session import Client, NewConnection
from headrace.doors.quic.settings import QuicSettings
from headrace.doors.quic.tickets import Tickets
from headrace.doors.settings import ListenerSettings
from headrace.doors.tasks import Tasks
from headrace.errors import Fault, cannot_listen
from headrace.quic.certificates import CertificateFiles, fingerprint_of, own_certificate
from headrace.quic.peers import HTTP_ALPN, KAFKA_ALPN, Peer, Quic, configured
from headrace.quic.sockets import Address, DatagramSocket

_LOOK_SECONDS: Final = 1.0
"""Between two looks at the files of the certificate."""
_LAST_WORDS_S: Final = 0.2

log = structlog.get_logger(__name__)


class QuicDoor:
    def __init__(
        self,
        settings: QuicSettings,
        broker: Broker,
        listener: ListenerSettings,
        *,
        new_connection: NewConnection,
        application: Application | None,
        directory: Path,
    ) -> None:
        """`directory` is where a certificate is made when none is given."""
        self._settings = settings
        self._broker = broker
        self._listener = Listener(listener)
        self._new_connection = new_connection
        self._application = application
        self._directory = directory
        self._tasks = Tasks("quic")
        self._tickets = Tickets()
        self._connections: dict[FramedConnection, None] = {}
        self._udp: DatagramSocket | None = None
        self._endpoint: Endpoint | None = None
        self.address: Address = ("", 0)
        """Where it listens."""
        self.fingerprint = ""
        """Of the certificate, for clients that know no authority for it."""

    async def start(self) -> None:
        listen = self._listener.settings.listen
        bound = _bind(listen, key=listen_key(self._listener.settings))
        try:
            self._files = self._certificate()
            self._seen = _stamps(self._files)
            self._configuration = self._read()
        except BaseException:
            bound.close()
            raise
        self._endpoint = Endpoint(self._settings, new_peer=self._new_peer, chance=self._broker.chance)
        self._udp = DatagramSocket(bound, self._endpoint.received)
        self._endpoint.begin(self._udp)
        self.address = self._listener.address = self._udp.address
        self._listener.advertised = advertised_address(self._listener.settings.advertised, self.address)
        self._broker.identity.addresses[self._listener.name] = self._listener.advertised
        self._tasks.spawn(self._keep_fresh())
        register_quic_metrics(self._broker.metrics, self._endpoint)
        log.info(
            "door open",
            door="quic",
            listener=self._listener.name,
            address=f"{self.address[0]}:{self.address[1]}",
            fingerprint=self.fingerprint,
        )

    def _certificate(self) -> CertificateFiles:
        settings = self._listener.settings
        if settings.tls_certificate is None or settings.tls_key is None:
            host = None if settings.advertised is None else parse_address(settings.advertised)[0]
            return own_certificate(self._directory, *(() if host is None else (host,)))
        return CertificateFiles(Path(settings.tls_certificate), Path(settings.tls_key))

    def _read(self) -> QuicConfiguration:
        alpn = [KAFKA_ALPN] if self._application is None else [KAFKA_ALPN, HTTP_ALPN]
        configuration = configured(is_client=False, alpn=alpn, idle_timeout_s=self._settings.idle_timeout_ms / 1000)
        try:
            configuration.load_cert_chain(self._files.certificate, self._files.key)
            self.fingerprint = fingerprint_of(self._files.certificate)
        except Exception as error:  # qh3 raises what its parts raise
            files = f"{self._files.certificate}, {self._files.key}"
            raise Fault(f"listener.{self._listener.name}.tls: {files}: {error}") from error
        return configuration

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            stamps = _stamps(self._files)
            if stamps == self._seen:
                continue
            self._seen = stamps
            try:
                self._configuration = self._read()
            except Fault as error:
                log.error("certificate not read, the former one stays", listener=self._listener.name, reason=str(error))
            else:
                log.info("certificate read anew", listener=self._listener.name, fingerprint=self.fingerprint)

    def _new_peer(self, original: Original | None, header: LongHeader, address: Address) -> Peer:
        assert self._endpoint is not None
        assert self._udp is not None
        has_early = self._settings.early_data_enable
        quic = Quic(
            configuration=self._configuration,
            original_destination_connection_id=header.destination_id if original is None else original.destination_id,
            retry_source_connection_id=None if original is None else original.source_id,
            session_ticket_fetcher=self._tickets.take if has_early else None,
            session_ticket_handler=self._tickets.keep if has_early else None,
        )
        return Client(
            quic,
            self._udp,
            address,
            endpoint=self._endpoint,
            listener=self._listener,
            new_connection=self._new_connection,
            application=self._application,
            spawn=self._tasks.spawn,
        )

    def _streams(self) -> Iterator[FramedConnection]:
        assert self._endpoint is not None
        for peer in self._endpoint.peers:
            for stream in peer.streams.values():
                protocol = stream.protocol
                if isinstance(protocol, FramedConnection):
                    yield protocol

    async def stop(self) -> None:
        """Take no more requests, answer those whose records are on their way to the disk, then close."""
        if self._endpoint is None or self._udp is None:
            return
        self._endpoint.close()
        await part((), list(self._streams()))
        if self._endpoint.peers:
            await asyncio.sleep(_LAST_WORDS_S)
        for peer in list(self._endpoint.peers):
            peer.close("the node stops")
        await self._tasks.stop()
        self._udp.close()


def _bind(listen: str, *, key: str) -> socket.socket:
    host, port = parse_address(listen)
    found = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        found = socket.socket(family, kind, number)
        found.bind(address)
    except OSError as error:
        if found is not None:
            found.close()
        raise cannot_listen(key, listen, number=error.errno, words=error.strerror) from error
    return found


def _stamps(files: CertificateFiles) -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for path in (files.certificate, files.key):
        try:
            stat = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_size))
    return found
