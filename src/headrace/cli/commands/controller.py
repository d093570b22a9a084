"""`headrace controller`: one controller in this process, until it is told to stop."""

from pathlib import Path

from cyclopts import App

from headrace.cli.roles import Config, Set, load_for

app = App(
    name="controller",
    help="Run one controller: it decides which broker leads what.",
    help_epilogue="""Examples:

    headrace controller --config controller.toml
    headrace controller --set node.id=c1 --set metastore.type=sqlite --set listen.rpc=127.0.0.1:9093 --set listen.http=127.0.0.1:9642
""",
)


@app.default
def controller(*, config: Config = None, data_dir: Path | None = None, set_: Set = None) -> int:
    """Run a controller until SIGTERM or Ctrl-C. Several may run; one of them is active.

    Parameters
    ----------
    config:
        TOML file of settings; docs/reference/settings.md lists the keys.
    data_dir:
        Directory of what the controller keeps: its metastore, where that is a file. `./data` unless said otherwise.
    set_:
        KEY=VALUE, over file and environment. Can be given more than once.
    """
    settings = load_for("controller", config=config, data_dir=data_dir, set_=set_)
    from headrace.node import run_controller

    return run_controller(settings)
