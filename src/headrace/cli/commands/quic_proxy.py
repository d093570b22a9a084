"""`headrace quic-proxy`: a local address for Kafka clients, and QUIC from there on."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headrace.cli.interruption import ended_in_order
from headrace.cli.options import Json
from headrace.cli.output import say, show_json
from headrace.errors import Invalid, NotFound

if TYPE_CHECKING:
    from headrace.clients.quic import Trust

app = App(
    name="quic-proxy",
    help="Let any Kafka client reach nodes over QUIC, through an address on this machine.",
    help_epilogue="""Examples:

    headrace quic-proxy --bootstrap far-away:9092 --fingerprint 95:14:8A:...
    headrace quic-proxy --bootstrap a:9092,b:9092 --ca ca.pem --listen 127.0.0.1:19092
    headrace quic-proxy fingerprint --data-dir data
""",
)


@app.default
def run(
    *,
    bootstrap: Annotated[str, Parameter(name=["--bootstrap", "-b"])] = "localhost:9092",
    listen: str = "127.0.0.1:19092",
    ca: Path | None = None,
    fingerprint: Annotated[str | None, Parameter(env_var="HEADRACE_QUIC_FINGERPRINT")] = None,
    system_ca: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Serve until Ctrl-C. Clients use the printed address as their bootstrap server.

    Parameters
    ----------
    bootstrap:
        QUIC addresses of one node or several, with commas; the first that answers is asked for the others.
    listen:
        Where Kafka clients reach this proxy. Nodes found later get free ports of the same address.
    ca:
        File with the authorities that nodes' certificates are from, in PEM.
    fingerprint:
        SHA-256 of a node's certificate, instead of an authority.
    system_ca:
        Believe the authorities that this machine believes.
    """
    from headrace.clients.quic import Trust
    from headrace.telemetry import configure_logging

    configure_logging("warning")
    trust = Trust(ca_file=None if ca is None else str(ca), fingerprint=fingerprint, is_system=system_ca)
    with ended_in_order():
        asyncio.run(_serve(bootstrap, listen, trust))


async def _serve(bootstrap: str, listen: str, trust: "Trust") -> None:
    from headrace.clients.quic_proxy import QuicProxy

    async with QuicProxy(bootstrap.split(","), listen=listen, trust=trust) as proxy:
        host, port = proxy.address
        say(f"Kafka clients: {host}:{port}   (QUIC to {bootstrap}; Ctrl-C ends)")
        await asyncio.Event().wait()


@app.command
def fingerprint(*, data_dir: Path | None = None, address: str | None = None, json: Json = False) -> None:
    """Show the fingerprint of a node's certificate: from its files, or as it shows it over the network.

    Parameters
    ----------
    data_dir:
        Data directory of a node on this machine that has made its own certificate.
    address:
        QUIC address of a node. Whoever answers there is believed: compare with what `headrace up` printed.
    """
    if (data_dir is None) == (address is None):
        raise Invalid("give --data-dir or --address")
    shown = _asked(address) if address is not None else _kept(data_dir or Path())
    show_json({"fingerprint": shown}) if json else say(shown)


def _kept(data_dir: Path) -> str:
    from headrace.quic.certificates import CERTIFICATE_NAME, fingerprint_of

    path = data_dir / CERTIFICATE_NAME
    if not path.exists():
        raise NotFound(f"{path}: this node has made no certificate; it may have been given one")
    return fingerprint_of(path)


def _asked(address: str) -> str:
    from headrace.clients.quic import QuicClient, Trust

    async def ask() -> str:
        async with QuicClient(address, trust=Trust(is_blind=True)) as client:
            return (await client.connect()).show_fingerprint()

    return asyncio.run(ask())
