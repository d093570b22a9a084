"""What `headrace broker` and `headrace controller` have in common: settings, logging, and nothing loaded before it is needed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from headrace.config.roles import Role
    from headrace.config.settings import NodeSettings

Config = Annotated[Path | None, Parameter(name=["--config", "-c"])]
Set = Annotated[list[str] | None, Parameter(name=["--set", "-s"], negative="")]


def load_for(role: "Role", *, config: Path | None, data_dir: Path | None, set_: list[str] | None) -> "NodeSettings":
    """Settings of a process of this role; logging is as they say from here on."""
    from headrace.config.keys import all_keys
    from headrace.config.load import load
    from headrace.config.sources import unknown_variables
    from headrace.telemetry import configure_logging, get_logger

    given = [] if data_dir is None else [f"data.dir={data_dir}"]
    settings = load(file=config, environ=os.environ, assignments=[*given, *(set_ or [])], role=role)
    configure_logging(settings.server.logging_level, form=settings.server.logging_format)
    for variable in unknown_variables(os.environ, all_keys()):
        get_logger(__name__).warning("environment variable names no setting", variable=variable)
    # Before gRPC is loaded, as in `headrace up`.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    return settings
