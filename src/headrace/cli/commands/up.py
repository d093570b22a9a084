"""`headrace up`: one node in this process, until it is told to stop."""

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headrace.cli.greeting import greeting
from headrace.cli.output import note, say

if TYPE_CHECKING:
    from headrace.config.server import ServerSettings
    from headrace.config.settings import NodeSettings
    from headrace.telemetry.held_lines import HeldLines

app = App(
    name="up",
    help="Run one node: every door, embedded defaults, one data directory.",
    help_epilogue="""Examples:

    headrace up
    headrace up --data-dir /var/lib/headrace --config headrace.toml
    headrace up --ephemeral --no-pipeline --set num.partitions=4
    headrace up --open
""",
)


@app.default
def up(
    *,
    data_dir: Path | None = None,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    set_: Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative="")] = None,
    ephemeral: Annotated[bool, Parameter(negative="")] = False,
    no_pipeline: Annotated[bool, Parameter(negative="")] = False,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
) -> int:
    """Run one node until SIGTERM or Ctrl-C. DATA_DIR/endpoints.json appears once every door listens.

    Parameters
    ----------
    data_dir:
        Directory of everything the node keeps; `./data` unless said otherwise.
    config:
        TOML file of settings; docs/reference/settings.md lists the keys.
    set_:
        KEY=VALUE, over file and environment. Can be given more than once.
    ephemeral:
        Every listener on a free loopback port, and, without --data-dir, a data directory that is removed at the end.
    no_pipeline:
        Do not start the Spark pipeline.
    open_:
        Listen on all addresses, and serve anybody who reaches them. Without it only this machine gets in.
    """
    # Imported here: settings hang on every package, the node on the whole engine, and `--help` needs neither.
    from headrace.config.keys import all_keys
    from headrace.config.load import load
    from headrace.config.sources import unknown_variables
    from headrace.telemetry import configure_logging, get_logger

    with ExitStack() as stack:
        assignments = []
        if ephemeral and data_dir is None:
            data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="headrace-")))
            note(f"ephemeral data in {data_dir}")
        if data_dir is not None:
            assignments.append(f"data.dir={data_dir}")
        if no_pipeline:
            assignments.append("pipeline.enable=false")
        if open_:
            assignments.append("security.open=true")
        settings = load(
            file=config,
            environ=os.environ,
            assignments=[*assignments, *(set_ or [])],
            is_ephemeral=ephemeral,
        )
        held = _held_lines(settings.server, stack)
        configure_logging(settings.server.logging_level, form=settings.server.logging_format, held=held)
        for variable in unknown_variables(os.environ, all_keys()):
            get_logger(__name__).warning("environment variable names no setting", variable=variable)

        # Before gRPC is loaded: at every process that we start it would write a line of its own, in no form that others read.
        # Ours become other programs at once, and need none of its handlers.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

        from headrace.admin.login.first import read_first_login
        from headrace.node import run

        def greet(endpoints: Mapping[str, tuple[str, int]]) -> None:
            # Programs that read our output get the events as JSON, and endpoints.json.
            text = ""
            if sys.stdout.isatty():
                (listener,) = settings.listeners_of("admin")
                text = greeting(
                    endpoints,
                    is_colored="NO_COLOR" not in os.environ,
                    is_tls=listener.tls_certificate is not None,
                    quic_fingerprint=_fingerprint(settings),
                    first_login=read_first_login(Path(settings.server.data_dir)),
                )
            if text:
                say(text)
            if held is not None:
                held.show_loud() if text else held.show_all()

        return run(settings, on_ready=greet)


def _fingerprint(settings: "NodeSettings") -> str | None:
    """Of the certificate that the QUIC door shows, where there is that door."""
    listeners = settings.listeners_of("quic")
    if not listeners:
        return None
    from headrace.quic.certificates import CERTIFICATE_NAME, fingerprint_of

    return fingerprint_of(Path(listeners[0].tls_certificate or Path(settings.server.data_dir) / CERTIFICATE_NAME))


def _held_lines(settings: "ServerSettings", stack: ExitStack) -> "HeldLines | None":
    """On a terminal the table of doors comes first; somebody who asks for details, or for JSON, gets every line at once."""
    from headrace.telemetry.held_lines import HeldLines

    is_watched = sys.stdout.isatty() and sys.stderr.isatty()
    if not is_watched or settings.logging_level == "debug" or settings.logging_format == "json":
        return None
    held = HeldLines(sys.stderr)
    # A start that fails has said why in these lines.
    stack.callback(held.show_all)
    held.start()
    return held
