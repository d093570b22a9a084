"""Security: access rules by intent, "may alice read orders?", users, quotas."""

from typing import Any, Final
from urllib.parse import quote

from headrace.admin.api.logins import TokenMade
from headrace.admin.api.quotas import QuotaRow
from headrace.admin.console.views import Asking, View, go_to
from headrace.broker.access.intents import KINDS, pattern_of, word_of
from headrace.errors import HeadraceError, Invalid

_WHOSE: Final = ("user", "client", "ip")
_LIMITS: Final = ("produce_bytes", "fetch_bytes", "request_percentage", "connections")


async def rules(page: Asking) -> View:
    """With `who` in the query, also whether they may do what it says."""
    found = await page.ask("ListAcls", principal=page.query.get("principal", "").strip(), **page.paging())
    verdict, problem = None, ""
    if page.query.get("who"):
        try:
            verdict = await page.ask("CheckAccess", **_question(page.query))
        except HeadraceError as error:
            problem = str(error)
    return View("rules.html", title="Access rules", found=found, verdict=verdict, problem=problem, tab="rules")


async def add(page: Asking) -> View:
    """In words: a star behind a name stands for all that begin so, and a group comes with the topics it reads."""
    given = page.form
    permission = "deny" if given.get("permission") == "deny" else "allow"
    fields = {"principal": given.get("who", "").strip(), "permission": permission}
    wanted = [(given.get("kind", "topic"), given.get("name", "").strip(), given.get("verb", ""))]
    if group := given.get("group", "").strip():
        wanted.append(("group", group, "read"))
    rows = [{**fields, **_place(kind, name), "operation": verb} for kind, name, verb in wanted]
    for is_dry_run in (True, False):
        # All of them are checked before the first is made.
        for row in rows:
            await page.ask("CreateAcl", **row, host=given.get("host", "").strip() or "*", dry_run=is_dry_run)
    verb = "may not" if permission == "deny" else "may"
    return go_to("security", f"{fields['principal']} {verb} {wanted[0][2]} {wanted[0][0]} {wanted[0][1]}.")


async def remove(page: Asking) -> View:
    names = ("principal", "permission", "operation", "kind", "name", "pattern", "host")
    await page.ask("DeleteAcl", **{name: page.form.get(name, "") for name in names})
    return go_to("security", f"The rule about {page.form.get('principal', '')} is taken back.")


async def quotas(page: Asking) -> View:
    return View("quotas.html", title="Quotas", found=await page.ask("ListQuotas", **page.paging()), tab="quotas")


async def set_quota(page: Asking) -> View:
    limits = {name: _amount(page.form[name], name) for name in _LIMITS if page.form.get(name, "").strip()}
    done = await page.ask("SetQuota", **_whose(page), **limits)
    return go_to("security/quotas", f"The quota of {_shown(done.quota)} is set.")


async def delete_quota(page: Asking) -> View:
    done = await page.ask("DeleteQuota", **_whose(page))
    return go_to("security/quotas", f"The quota of {_shown(done.quota)} is taken back.")


async def users(page: Asking) -> View:
    return View("users.html", title="Users", found=await page.ask("ListUsers", **page.paging()), tab="users")


async def create_user(page: Asking) -> View:
    name = page.form.get("user", "").strip()
    is_super = page.form.get("is_super") == "on"
    await page.ask("CreateUser", user=name, password=_password(page.form), is_super=is_super)
    return go_to(f"security/users/{quote(name, safe='')}", f"User {name} created.")


async def user(page: Asking, made: TokenMade | None = None) -> View:
    """`made` is a token of theirs that nobody has seen yet."""
    found = await page.ask("DescribeUser", user=page.names["user"])
    tokens = (await page.ask("ListTokens", user=page.names["user"])).tokens
    return View("user.html", title=found.user, found=found, tokens=tokens, made=made, tab="users")


async def set_password(page: Asking) -> View:
    name = page.names["user"]
    done = await page.ask("SetPassword", user=name, password=_password(page.form))
    return go_to(f"security/users/{quote(name, safe='')}", done.message)


async def delete_user(page: Asking) -> View:
    name = page.names["user"]
    if page.form.get("typed") != name:
        raise Invalid(f"type {name} to delete it")
    done = await page.ask("DeleteUser", user=name)
    return go_to("security/users", done.message)


def _whose(page: Asking) -> dict[str, str]:
    return {name: page.form[name].strip() for name in _WHOSE if page.form.get(name, "").strip()}


def _shown(quota: QuotaRow) -> str:
    return " and ".join(f"{name} {value}" for name in _WHOSE if (value := getattr(quota, name)) is not None)


def _amount(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Invalid(f"{name.replace('_', ' ')}: {text[:40]!r} is no number") from error


def _question(given: dict[str, str]) -> dict[str, Any]:  # Any: fields of CheckAccess
    return {
        "principal": given["who"].strip(),
        "operation": given.get("verb", "read"),
        "kind": given.get("kind", "topic"),
        "name": given.get("name", "").strip(),
        "host": given.get("host", "").strip() or "127.0.0.1",
    }


def _place(kind: str, name: str) -> dict[str, str]:
    if kind not in KINDS:
        raise Invalid(f"{kind[:40]!r} is nothing that rules speak of")
    pattern, plain = pattern_of(KINDS[kind], name)
    return {"kind": kind, "name": plain, "pattern": word_of(pattern)}


def _password(form: dict[str, str]) -> str:
    if form.get("password", "") != form.get("again", ""):
        raise Invalid("these were two different passwords")
    return form.get("password", "")
