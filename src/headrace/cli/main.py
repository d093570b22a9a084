"""The `headrace` command: finds the noun, hands over, turns errors into one line and exit status 1.

Command modules are imported only when used, so that `headrace --help` answers at once: what they need (Kafka's
client, Spark) takes seconds to load.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from cyclopts import App, CycloptsError

from headrace import __version__
from headrace.cli.output import fail
from headrace.errors import HeadraceError

COMMANDS: Final = {
    "up": "Run one node: every door, embedded defaults, one data directory.",
    "broker": "Run one broker of several; controllers tell it what to lead.",
    "controller": "Run one controller: it decides which broker leads what.",
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Write lines from standard input to a topic.",
    "consume": "Read a topic to standard output.",
    "group": "Look at consumer groups and move their offsets.",
    "transaction": "Look at transactions and end those that hang.",
    "user": "Make and remove users, and set their passwords.",
    "acl": "List, add and remove access rules: who may do what.",
    "quota": "List, set and remove quotas: how much a user, client or address may do in a second.",
    "audit": "See who was refused what, and who changed what.",
    "cluster": "Start a cluster on this machine, prepare one on several, and describe it.",
    "config": "Look at and change settings of topics and brokers.",
    "wasm": "Change records of a topic before they are written, with Wasm modules.",
    "trace": "Follow one record from the WAL to its object, pipelines and groups.",
    "tier": "Look at what lies in object storage, and verify it.",
    "pipeline": "Land topics in tables with Spark.",
    "sql": "Query topics and tables with SQL.",
    "quic-proxy": "Let any Kafka client reach nodes over QUIC.",
    "inspect": "Decode what clients and nodes said to each other, frame by frame.",
    "bench": "Measure headrace on this machine, alone or beside Apache Kafka.",
}
"""Every command and what it is for; `headrace.cli.commands.<name>`, with an underscore for a hyphen, has its `app`."""

HELP = """A Kafka-compatible log that lives on object storage.

Start a node, then talk to it from another terminal:

    headrace up
    headrace topic create orders --partitions 3
    echo hello | headrace produce orders
    headrace consume orders --from-beginning --max 1
"""


def build_app() -> App:
    app = App(name="headrace", help=HELP, help_format="markdown", version=__version__)
    for name, sentence in COMMANDS.items():
        module = f"headrace.cli.commands.{name.replace('-', '_')}"
        if find_spec(module):
            app.command(f"{module}:app", name=name, help=sentence)
    app.register_install_completion_command()
    return app


_OUTPUT_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except CycloptsError:
        sys.exit(1)  # cyclopts has shown it, with the usage it belongs to
    except HeadraceError as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader of our output has gone (`| head`), and knows it.
        _abandon_output()
        sys.exit(1)
    except ConnectionError as error:
        fail(error.strerror or str(error))
    except OSError as error:
        # A file or directory that is not there, not ours or not what it should be; without a name, a fault of our own,
        # but for what is written to standard output.
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}")
        if error.errno not in _OUTPUT_ERRORS:
            raise
        _abandon_output()
        fail(f"cannot write the answer: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)


def _run(arguments: Sequence[str]) -> None:
    try:
        build_app()(arguments, exit_on_error=False)
    finally:
        # Here what goes wrong can still be said; at the interpreter's end it is a traceback and status 120.
        sys.stdout.flush()


def _abandon_output() -> None:
    """The interpreter would try to write the rest once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
