"""`headrace user`: create, password, list, delete, and tokens for programs."""

import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.options import DAYS, DEFAULT_API, DEFAULT_EITHER_WAY, Api, EitherWay
from headrace.cli.output import say, show_done, show_json, show_table
from headrace.errors import Invalid

app = App(
    name="user",
    help="Make and remove users, and set their passwords.",
    help_epilogue="""Examples:

    headrace user create admin --super --local /var/lib/headrace
    headrace user create alice --password-file alice.password
    headrace user list --api https://broker-1:9642 --token-file admin.token
    headrace user token alice --note backup --local /var/lib/headrace > alice.token
""",
)


@app.command
def create(
    name: str,
    /,
    *,
    super_: Annotated[bool, Parameter(name="--super", negative="")] = False,
    password_file: Path | None = None,
    admin: EitherWay = DEFAULT_EITHER_WAY,
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
    from headrace.cli.administration import open_users

    open_users(admin).create(name, _password(password_file), is_super=super_)
    show_done(f"created {name}", as_json=admin.json, user=name)


@app.command
def password(name: str, /, *, password_file: Path | None = None, admin: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Set another password. Whoever is logged in with the old one is closed.

    Parameters
    ----------
    name:
        Whose.
    password_file:
        File with the password. It is asked for unless given.
    """
    from headrace.cli.administration import open_users
    from headrace.errors import NotFound

    users = open_users(admin)
    if not users.list(name):
        raise NotFound(f"there is no user {name!r}")
    users.set_password(name, _password(password_file))
    show_done(f"{name} has a new password", as_json=admin.json, user=name)


@app.command(name="list")
def list_users(*, admin: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """List users, and how they can log in."""
    from msgspec import structs

    from headrace.cli.administration import open_users

    rows = [structs.asdict(each) for each in open_users(admin).list()]
    show_table(rows, columns=("user", "mechanisms", "iterations"), as_json=admin.json)


@app.command
def delete(name: str, /, *, admin: EitherWay = DEFAULT_EITHER_WAY) -> None:
    """Remove a user. Whoever is logged in as them is closed; access rules stay.

    Parameters
    ----------
    name:
        Whom.
    """
    from headrace.cli.administration import open_users

    open_users(admin).delete(name)
    show_done(f"deleted {name}", as_json=admin.json, user=name)


@app.command
def token(
    name: str,
    /,
    *,
    days: Annotated[int, Parameter(validator=DAYS)] = 90,
    note: str = "",
    api: Api = DEFAULT_API,
) -> None:
    """Make a token, with which a program uses the REST API as this user. It is shown now, and never again.

    Parameters
    ----------
    name:
        Whose.
    days:
        How long it is good; 0 is until it is revoked.
    note:
        What it is for.
    """
    made = api.client.post("users", name, "tokens", body={"days": days, "note": note})
    if api.json:
        show_json(made)
    else:
        say(made["secret"])


@app.command
def tokens(name: str, /, *, api: Api = DEFAULT_API) -> None:
    """List the tokens of a user, without what makes them good.

    Parameters
    ----------
    name:
        Whose.
    """
    found = api.client.get("users", name, "tokens")["tokens"]
    rows = [{**row, "created": _day(row["created_ms"]), "expires": _day(row["expires_ms"])} for row in found]
    show_table(found if api.json else rows, columns=("token", "note", "created", "expires"), as_json=api.json)


@app.command
def revoke(name: str, token: str, /, *, api: Api = DEFAULT_API) -> None:
    """Revoke a token: it opens nothing any more.

    Parameters
    ----------
    name:
        Whose.
    token:
        Its id, as `headrace user tokens` shows it.
    """
    api.client.delete("users", name, "tokens", token)
    show_done(f"revoked {token}", as_json=api.json, token=token)


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat() if milliseconds else "-"


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
