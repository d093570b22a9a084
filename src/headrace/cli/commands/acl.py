"""`headrace acl`: allow, deny, remove, list, check."""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from headrace.cli.options import DEFAULT_EITHER_WAY, EitherWay
from headrace.cli.output import show_done, show_fields, show_table

Verb = Literal[
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "describe-configs",
    "alter-configs",
    "cluster-action",
    "idempotent-write",
    "all",
]
Kind = Literal["topic", "group", "cluster", "transactional-id"]
Host = Annotated[str, Parameter(help="Address or network (10.0.0.0/8) that they come from.")]

app = App(
    name="acl",
    help="List, add and remove access rules: who may do what.",
    help_epilogue="""Examples:

    headrace acl allow alice read orders --group billing
    headrace acl allow bob write 'orders-*'
    headrace acl deny mallory all '*'
    headrace acl check alice read orders
    headrace acl list --principal alice --api https://broker-1:9642 --token-file admin.token
    headrace acl allow admin all --kind cluster --local /var/lib/headrace
""",
)


@app.command
def allow(
    who: str,
    verb: Verb,
    name: str = "",
    /,
    *,
    kind: Kind = "topic",
    group: str | None = None,
    host: Host = "*",
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Let somebody do something. Takes effect within a second, on open connections too.

    Parameters
    ----------
    who:
        A user's name, or a principal as `User:alice`; `*` is everybody.
    verb:
        What they may do. Who may read, write, delete or alter may describe, too.
    name:
        To which topic; `orders-*` is all that begin so, `*` all. The cluster needs none.
    kind:
        What the name is the name of.
    group:
        Let them also read as this consumer group.
    """
    _change(who, verb, name, kind, group, host, admin, is_denied=False)


@app.command
def deny(
    who: str,
    verb: Verb,
    name: str = "",
    /,
    *,
    kind: Kind = "topic",
    group: str | None = None,
    host: Host = "*",
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Forbid somebody something, whatever else allows it.

    Parameters
    ----------
    who:
        A user's name, or a principal as `User:alice`; `*` is everybody.
    verb:
        What they may not do. Nothing else is implied.
    name:
        To which topic; `orders-*` is all that begin so, `*` all. The cluster needs none.
    kind:
        What the name is the name of.
    group:
        Forbid them also to read as this consumer group.
    """
    _change(who, verb, name, kind, group, host, admin, is_denied=True)


@app.command
def remove(
    who: str,
    verb: Verb,
    name: str = "",
    /,
    *,
    kind: Kind = "topic",
    group: str | None = None,
    host: Host = "*",
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """Remove a rule: say it in the same words as `allow` or `deny` did.

    Parameters
    ----------
    who:
        As it was given.
    verb:
        As it was given.
    name:
        As it was given.
    kind:
        As it was given.
    group:
        As it was given.
    """
    from headrace.broker.access.intents import rules_of
    from headrace.cli.administration import open_rules
    from headrace.errors import NotFound

    rules = [
        rule
        for is_denied in (False, True)
        for rule in rules_of(who, verb, name, kind=kind, group=group, host=host, is_denied=is_denied)
    ]
    count = open_rules(admin).delete(rules)
    if not count:
        raise NotFound("there is no such rule; `headrace acl list` shows those there are")
    show_done(f"removed {count}", as_json=admin.json, removed=count)


@app.command(name="list")
def list_rules(
    *,
    principal: str | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> None:
    """List rules, all or those that concern somebody or something.

    Parameters
    ----------
    principal:
        Only those that name this user.
    kind:
        Only those about topics, groups, the cluster or transactional ids.
    name:
        Only those that speak of this name, by itself, by a prefix of it or by a star.
    """
    from headrace.broker.access.intents import KINDS, principal_of, shown_name, word_of
    from headrace.cli.administration import open_rules

    rules = open_rules(admin).find(
        principal=None if principal is None else principal_of(principal),
        kind=None if kind is None else KINDS[kind],
        name=name,
    )
    rows = [
        {
            "principal": rule.principal,
            "permission": word_of(rule.permission),
            "operation": word_of(rule.operation),
            "kind": word_of(rule.resource),
            "name": shown_name(rule),
            "host": rule.host,
        }
        for rule in sorted(rules)
    ]
    columns = ("principal", "permission", "operation", "kind", "name", "host")
    show_table(rows, columns=columns, as_json=admin.json)


@app.command
def check(
    who: str,
    verb: Verb,
    name: str = "",
    /,
    *,
    kind: Kind = "topic",
    host: str = "127.0.0.1",
    admin: EitherWay = DEFAULT_EITHER_WAY,
) -> int:
    """Tell whether somebody may do something. Exit status 1 when not.

    Decided here, from the node's rules. Super users are not among them, nor what the node does where no rule speaks.

    Parameters
    ----------
    who:
        A user's name, or a principal as `User:alice`.
    verb:
        What they want to do.
    name:
        To which topic.
    kind:
        What the name is the name of.
    host:
        Address that they come from.
    """
    from headrace.broker.access.intents import KINDS, explain, operation_of, principal_of
    from headrace.broker.access.words import CLUSTER_NAME, Resource, parse_principal
    from headrace.cli.administration import open_rules

    resource = KINDS[kind]
    about = open_rules(admin).find(kind=resource, name=CLUSTER_NAME if resource is Resource.CLUSTER else name)
    answer = explain(about, parse_principal(principal_of(who)), host, operation_of(verb))
    show_fields(
        {"allowed": answer.is_allowed, "because": "; ".join(answer.reasons) or "no rule allows it"}, as_json=admin.json
    )
    return 0 if answer.is_allowed else 1


def _change(
    who: str,
    verb: str,
    name: str,
    kind: str,
    group: str | None,
    host: str,
    admin: EitherWay,
    *,
    is_denied: bool,
) -> None:
    from headrace.broker.access.intents import rules_of
    from headrace.cli.administration import open_rules

    rules = rules_of(who, verb, name, kind=kind, group=group, host=host, is_denied=is_denied)
    open_rules(admin).create(rules)
    done = "denied" if is_denied else "allowed"
    what = ", ".join(f"{rule.operation.name} {rule.resource.name.lower()} {rule.name}" for rule in rules)
    show_done(f"{rules[0].principal} is {done}: {what}", as_json=admin.json, rules=len(rules))
