"""`headrace user`: create, password, list, delete."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_ADMINISTRATION, Administration
from headrace.cli.output import show_done, show_table
from headrace.errors import Invalid

app = App(
    name="user",
    help="Make and remove users, and set their passwords.",
    help_epilogue="""Examples:

    headrace user create admin --super --local /var/lib/headrace
    headrace user create alice --password-file alice.password
    headrace user list
""",
)


@app.command
def create(
    name: str,
    /,
    *,
    super_: Annotated[bool, Parameter(name="--super", negative="")] = False,
    password_file: Path | None = None,
    admin: Administration = DEFAULT_ADMINISTRATION,
) -> None:
    """Make a user, who logs in with SCRAM or PLAIN.

    Parameters
    ----------
    name:
        What they log in as; access rules know them as `User:NAME`.
    super_:
        Also allow them everything, by access rules.
    password_file:
        File with the password. It is asked for unless given, and never an argument: others can read those.
    """
    from headrace.cli.kafka_users import UserAdmin

    UserAdmin(admin.address).create(name, _password(password_file), is_super=super_)
    show_done(f"created {name}", as_json=admin.json, user=name)


@app.command
def password(
    name: str, /, *, password_file: Path | None = None, admin: Administration = DEFAULT_ADMINISTRATION
) -> None:
    """Set another password. Whoever is logged in with the old one is closed.

    Parameters
    ----------
    name:
        Whose.
    password_file:
        File with the password. It is asked for unless given.
    """
    from headrace.cli.kafka_users import UserAdmin
    from headrace.errors import NotFound

    users = UserAdmin(admin.address)
    if not users.list(name):
        raise NotFound(f"there is no user {name!r}")
    users.set_password(name, _password(password_file))
    show_done(f"{name} has a new password", as_json=admin.json, user=name)


@app.command(name="list")
def list_users(*, admin: Administration = DEFAULT_ADMINISTRATION) -> None:
    """List users, and how they can log in."""
    from msgspec import structs

    from headrace.cli.kafka_users import UserAdmin

    rows = [structs.asdict(each) for each in UserAdmin(admin.address).list()]
    show_table(rows, columns=("user", "mechanisms", "iterations"), as_json=admin.json)


@app.command
def delete(name: str, /, *, admin: Administration = DEFAULT_ADMINISTRATION) -> None:
    """Remove a user. Whoever is logged in as them is closed; access rules stay.

    Parameters
    ----------
    name:
        Whom.
    """
    from headrace.cli.kafka_users import UserAdmin

    UserAdmin(admin.address).delete(name)
    show_done(f"deleted {name}", as_json=admin.json, user=name)


def _password(path: Path | None) -> str:
    if path is not None:
        given = path.read_text(encoding="utf-8").rstrip("\n")
    elif sys.stdin.isatty():
        given = getpass.getpass("password: ")
        if given != getpass.getpass("once more: "):
            raise Invalid("these were two different passwords")
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise Invalid("the password is empty")
    return given
