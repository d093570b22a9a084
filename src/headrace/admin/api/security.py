"""Who may come in and who may do what: users, access rules, and "may alice read orders?". Passwords come in, and never out."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.admin.api.calls import Call
from headrace.admin.api.paging import PageRequest, page_of
from headrace.admin.api.topics import Done
from headrace.broker.access.intents import (
    KINDS,
    Question,
    Verdict,
    check_intent,
    decide,
    operation_of,
    principal_of,
    word_of,
)
from headrace.broker.access.rules import Filter, Rule
from headrace.broker.access.scram import Verifier
from headrace.broker.access.service import everything_for
from headrace.broker.access.users import NAME_LENGTH_MAX, PASSWORD_LENGTH_MAX, check_user_name
from headrace.broker.access.words import CLUSTER_NAME, Pattern, Permission, Principal, Resource, parse_principal
from headrace.errors import Conflict, ResourceExists, ResourceNotFound

UserName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
Password = Annotated[
    str, Meta(min_length=1, max_length=PASSWORD_LENGTH_MAX, extra_json_schema={"format": "password", "writeOnly": True})
]
Verifiers = Mapping[str, Verifier]
Who = Annotated[str, Meta(min_length=1, max_length=500)]
"""`alice`, or a principal as `User:alice`; `User:*` is everybody."""
ResourceName = Annotated[str, Meta(max_length=4096)]
Host = Annotated[str, Meta(min_length=1, max_length=255)]
Kind = Literal["topic", "group", "cluster", "transactional-id"]
Verb = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "two-phase-commit",
]


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    mechanisms: list[str]
    """How they can log in."""
    is_trusted: bool
    """No rule binds them."""
    iterations: int = 0
    """How dear it is to guess their password: the fewest of their mechanisms."""


class ListUsers(PageRequest, frozen=True):
    pass


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    users: list[UserRow]
    next_page_token: str = ""
    total: int


class NamedUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName


class CreateUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    password: Password
    is_super: bool = False
    """Also allow them everything, by access rules."""
    dry_run: bool = False


class SetPassword(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    password: Password
    dry_run: bool = False


class DeleteUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: UserName
    dry_run: bool = False


class AclRow(msgspec.Struct, frozen=True, kw_only=True):
    """`principal` may, or may not, do `operation` to what `pattern` and `name` describe, coming from `host`."""

    principal: str
    permission: Literal["allow", "deny"]
    operation: str
    kind: str
    name: str
    pattern: Literal["literal", "prefixed"]
    """`literal`: this name, and `*` is every name; `prefixed`: every name that begins so."""
    host: str


class UserDetail(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    mechanisms: list[str]
    is_trusted: bool
    acls: list[AclRow]
    """Rules that name them. Those for everybody concern them, too."""


class ListAcls(PageRequest, frozen=True):
    principal: Annotated[str, Meta(max_length=500)] = ""
    """Only rules that name them."""
    kind: Kind | None = None
    name: ResourceName = ""
    """Only rules that speak of this name: by itself, by a prefix of it or by a star."""


class AclList(msgspec.Struct, frozen=True, kw_only=True):
    acls: list[AclRow]
    next_page_token: str = ""
    total: int
    is_on: bool
    """Whether rules are asked at all (`security.authorization.enable`)."""


class CreateAcl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: Who
    operation: Verb
    permission: Literal["allow", "deny"] = "allow"
    kind: Kind = "topic"
    name: ResourceName = ""
    """The cluster needs none."""
    pattern: Literal["literal", "prefixed"] = "literal"
    host: Host = "*"
    dry_run: bool = False


class DeleteAcl(CreateAcl, frozen=True):
    """The very rule that was made with these words."""


class AclChanged(msgspec.Struct, frozen=True, kw_only=True):
    acl: AclRow
    is_dry_run: bool = False


class CheckAccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: Who
    operation: Verb
    kind: Kind = "topic"
    name: ResourceName = ""
    host: Host = "127.0.0.1"


async def list_users(request: ListUsers, call: Call) -> UserList:
    users = call.broker.access.users
    page = await page_of(users.names(), request, turns=call.turns, name=lambda name: name, orders={})
    rows = [_user_row(name, call) async for name in call.turns.over(page.items)]
    return UserList(users=rows, next_page_token=page.next_token, total=page.total)


async def describe_user(request: NamedUser, call: Call) -> UserDetail:
    row = _known_user(request.user, call)
    wanted = Filter(principal=str(Principal(request.user)))
    rules = [rule async for rule in call.turns.over(call.broker.access.all_rules()) if wanted.takes(rule)]
    return UserDetail(
        user=row.user,
        mechanisms=row.mechanisms,
        is_trusted=row.is_trusted,
        acls=[_acl_row(rule) for rule in sorted(rules)],
    )


async def create_user(request: CreateUser, call: Call) -> Done:
    access = call.broker.access
    check_user_name(request.user)
    fresh = {} if request.dry_run else await access.users.new_verifiers(request.password)

    def create(before: Verifiers) -> Verifiers:
        if before:
            raise ResourceExists(f"there is a user {request.user!r} already")
        return fresh

    create(access.users.verifiers(request.user))
    if not request.dry_run:
        # The user first: rules of an administrator without a user would wait for whoever takes the name.
        await access.change_verifiers(request.user, create, call.author)
        if request.is_super:
            await access.add_rules(everything_for(Principal(request.user)), call.author)
    return Done(message=f"user {request.user} created", is_dry_run=request.dry_run)


async def set_password(request: SetPassword, call: Call) -> Done:
    access = call.broker.access
    _known_user(request.user, call)
    if not request.dry_run:
        fresh = await access.users.new_verifiers(request.password)
        await access.change_verifiers(request.user, _replacing(request.user, fresh), call.author)
    return Done(
        message=f"{request.user} has a new password; connections that used the old one are closed",
        is_dry_run=request.dry_run,
    )


async def delete_user(request: DeleteUser, call: Call) -> Done:
    _known_user(request.user, call)
    if not request.dry_run:
        await call.broker.access.change_verifiers(request.user, _replacing(request.user, {}), call.author)
    return Done(message=f"user {request.user} deleted; access rules that name them stay", is_dry_run=request.dry_run)


async def list_acls(request: ListAcls, call: Call) -> AclList:
    access = call.broker.access
    wanted = Filter(
        resource=None if request.kind is None else KINDS[request.kind],
        name=request.name or None,
        is_match=True,
        principal=principal_of(request.principal) if request.principal else None,
    )
    rules = [rule async for rule in call.turns.over(access.all_rules()) if wanted.takes(rule)]
    page = await page_of(
        rules,
        request,
        turns=call.turns,
        name=_sort_name,
        orders={
            "operation": lambda rule: word_of(rule.operation),
            "resource": lambda rule: f"{word_of(rule.resource)} {rule.name}",
        },
    )
    return AclList(
        acls=[_acl_row(rule) async for rule in call.turns.over(page.items)],
        next_page_token=page.next_token,
        total=page.total,
        is_on=access.is_on,
    )


async def create_acl(request: CreateAcl, call: Call) -> AclChanged:
    rule = _rule_of(request, call)
    check_intent(rule)
    if not request.dry_run:
        await call.broker.access.add_rules([rule], call.author)
    return AclChanged(acl=_acl_row(rule), is_dry_run=request.dry_run)


async def delete_acl(request: DeleteAcl, call: Call) -> AclChanged:
    rule = _rule_of(request, call)
    access = call.broker.access
    if rule not in access.rules_about(rule.resource, rule.name):
        raise ResourceNotFound("there is no such access rule")
    if not request.dry_run:
        await access.delete_rules(
            Filter(**{field: getattr(rule, field) for field in rule.__struct_fields__}), call.author
        )
    return AclChanged(acl=_acl_row(rule), is_dry_run=request.dry_run)


async def check_access(request: CheckAccess, call: Call) -> Verdict:
    resource = KINDS[request.kind]
    return decide(
        call.broker.access,
        Question(
            principal=parse_principal(principal_of(request.principal)),
            host=request.host,
            operation=operation_of(request.operation),
            resource=resource,
            name=CLUSTER_NAME if resource is Resource.CLUSTER else request.name,
        ),
    )


def _known_user(name: str, call: Call) -> UserRow:
    if not call.broker.access.users.verifiers(name):
        raise ResourceNotFound(f"there is no user {name!r}")
    return _user_row(name, call)


def _replacing(name: str, after: Verifiers) -> Callable[[Verifiers], Verifiers]:
    """For `change_verifiers`: somebody else may have deleted the user meanwhile."""

    def change(before: Verifiers) -> Verifiers:
        if not before:
            raise ResourceNotFound(f"there is no user {name!r}")
        return after

    return change


def _user_row(name: str, call: Call) -> UserRow:
    access = call.broker.access
    verifiers = access.users.verifiers(name)
    return UserRow(
        user=name,
        mechanisms=sorted(verifiers),
        is_trusted=access.is_trusted(Principal(name)),
        iterations=min((each.iterations for each in verifiers.values()), default=0),
    )


def _rule_of(request: CreateAcl, call: Call) -> Rule:
    if not call.broker.access.is_on:
        raise Conflict("this node asks nobody about access: set security.authorization.enable and start it again")
    resource = KINDS[request.kind]
    return Rule(
        resource=resource,
        name=CLUSTER_NAME if resource is Resource.CLUSTER else request.name,
        pattern=Pattern[request.pattern.upper()],
        principal=principal_of(request.principal),
        host=request.host,
        operation=operation_of(request.operation),
        permission=Permission[request.permission.upper()],
    )


def _acl_row(rule: Rule) -> AclRow:
    return AclRow(
        principal=rule.principal,
        permission="deny" if rule.permission is Permission.DENY else "allow",
        operation=word_of(rule.operation),
        kind=word_of(rule.resource),
        name=rule.name,
        pattern="prefixed" if rule.pattern is Pattern.PREFIXED else "literal",
        host=rule.host,
    )


def _sort_name(rule: Rule) -> str:
    """Different for different rules: pages are cut by it."""
    return " ".join(
        (
            rule.principal,
            word_of(rule.resource),
            rule.name,
            word_of(rule.pattern),
            word_of(rule.operation),
            word_of(rule.permission),
            rule.host,
        )
    )
