"""The `headrace` command: finds the noun, hands over, turns errors into one line and exit status 1.

Command modules are imported only when used, so that `headrace --help` answers at once: what they need (Kafka's
client, Spark) takes seconds to load.
"""

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
    "topic": "Create, list, describe, alter and delete topics.",
    "produce": "Write lines from standard input to a topic.",
    "consume": "Read a topic to standard output.",
    "group": "Look at consumer groups and move their offsets.",
    "transaction": "Look at transactions and end those that hang.",
    "cluster": "Describe the cluster and its brokers.",
    "config": "Look at and change settings of topics and brokers.",
    "tier": "Look at what lies in object storage, and verify it.",
    "pipeline": "Land topics in tables with Spark.",
    "sql": "Query topics and tables with SQL.",
    "inspect": "Decode what clients and nodes said to each other, frame by frame.",
    "bench": "Measure this machine.",
}
"""Every command and what it is for; `headrace.cli.commands.<name>` has its `app`."""

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
        module = f"headrace.cli.commands.{name}"
        if find_spec(module):
            app.command(f"{module}:app", name=name, help=sentence)
    app.register_install_completion_command()
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        build_app()(sys.argv[1:] if arguments is None else arguments, exit_on_error=False)
    except CycloptsError:
        sys.exit(1)  # cyclopts has shown it, with the usage it belongs to
    except HeadraceError as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); closing stderr keeps the interpreter from complaining.
        sys.stderr.close()
        sys.exit(1)
    except ConnectionError as error:
        fail(error.strerror or str(error))
    except OSError as error:
        # A file or directory that is not there, not ours or not what it should be; without a name, a fault of our own.
        if error.filename is None:
            raise
        fail(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(130)
