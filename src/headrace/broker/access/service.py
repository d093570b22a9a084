"""The one question: may somebody do this to that? Every verb of every door asks it here.

Rules live in the metastore, and every broker follows them there: a change holds on open connections as soon as it is heard of.
`revision` moves with every change of anything that an answer depends on. Whoever keeps an answer keeps it for one revision.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from headrace.broker.access.api_tokens import NOTE_LENGTH_MAX, TOKENS_PER_USER_MAX, ApiToken, NewToken, new_token
from headrace.broker.access.audit import Audit
from headrace.broker.access.quotas import QUOTAS_MAX, Entity, Limit, Quotas, encode_limits
from headrace.broker.access.rules import Filter, Rule, Rules
from headrace.broker.access.scram import Verifier
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.access.stored import decode_rule, encode_rule
from headrace.broker.access.users import USERS_MAX, Users, check_user_name, encode_user
from headrace.broker.access.words import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    Principal,
    Resource,
)
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.control import keys
from headrace.control.metastore import Metastore
from headrace.control.security import SecurityChange, SecurityEntries
from headrace.errors import Corrupted, Invalid, NewerFormat, NotReady, ResourceNotFound
from headrace.telemetry.problems import Problems

if TYPE_CHECKING:
    from headrace.broker.access.tokens import Tokens

RULES_MAX: Final = 100_000
"""All are held in memory by every broker."""
_CHANGES_AT_ONCE: Final = 500
"""Rules made or deleted by one request: one transaction of the metastore takes them."""
_VERDICTS_MAX: Final = 10_000
"""Answers that a connection keeps; names come from the network."""

_NOT_UNDERSTOOD: Final = "access.not-understood"

OWNER: Final = Principal("local", "Owner")
"""Whoever may open files in the data directory: they could read the records there, and need no rule."""

log = structlog.get_logger(__name__)


class Access:
    """`load` it, then let `follow` run. Without a store nobody is asked anything."""

    def __init__(
        self,
        settings: SecuritySettings,
        store: Metastore | None = None,
        chance: Chance = SYSTEM_CHANCE,
        problems: Problems | None = None,
        audit: Audit | None = None,
    ) -> None:
        self.chance = chance
        self.is_on = settings.authorization_enable
        self.reauth_max_ms = settings.reauth_max_ms
        self.revision = 0
        self.on_change: list[Callable[[], None]] = []
        """Told after each change, before anybody else runs."""
        self.denials_total = 0
        self.audit = audit
        """Told of refusals and changes; None where nobody keeps them."""
        self._settings = settings
        self._super_users = frozenset((*settings.super_users, str(OWNER)))
        self.users = Users(chance)
        self.tokens = None if settings.oauth_jwks_file is None else _tokens(settings)
        self.quotas = Quotas()
        self._rules = Rules()
        self._by_key: dict[str, Rule] = {}
        self._closing: dict[str, tuple[Rule, ...]] = {}
        """By the keys of rules that are not understood: what they may deny, and so do."""
        self._closed: tuple[Rule, ...] = ()
        """All of it; apart from the rules, which are taken away one by one."""
        self._not_understood: dict[str, str] = {}
        """Keys of entries that this version cannot read, and what follows from each."""
        self._problems = problems
        self._has_decoy = False
        self._entries = None
        if store is not None:
            self._entries = SecurityEntries(store, apply=self._apply, changed=self._changed)

    async def load(self) -> None:
        await self._stored.load()
        if not self._has_decoy:
            await self._stored.found(keys.SECURITY_DECOY, self.chance.randbytes(32))
            await self._stored.load()

    async def follow(self) -> None:
        await self._stored.follow()

    @property
    def _stored(self) -> SecurityEntries:
        if self._entries is None:
            raise NotReady("there is no metastore to keep access rules in")
        return self._entries

    # -- asking --------------------------------------------------------------------------------------------------

    def guard(self, principal: Principal, host: str) -> "Guard":
        return Guard(self, principal, host)

    def may(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str = CLUSTER_NAME
    ) -> bool:
        if self.is_trusted(principal):
            return True
        if self._is_closed(principal, host, operation, resource):
            return False
        return self._rules.allows(
            principal, host, operation, resource, name, otherwise=self._settings.allow_everyone_if_no_acl_found
        )

    def may_any(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether there may be one that they may do it to."""
        # A name nobody has: the answer where no rule speaks of it.
        if self.may(principal, host, operation, resource, "hardcode"):
            return True
        is_open = not self._is_closed(principal, host, operation, resource)
        return is_open and self._rules.allows_any(principal, host, operation, resource)

    def _is_closed(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether a rule that is not understood may deny it."""
        return any(
            rule.resource is resource and rule.concerns(principal, host) and rule.covers(operation)
            for rule in self._closed
        )

    def is_trusted(self, principal: Principal) -> bool:
        """Whether no rule binds them."""
        return not self.is_on or str(principal) in self._super_users

    # -- rules ---------------------------------------------------------------------------------------------------

    def rules(self, wanted: Filter) -> list[Rule]:
        return sorted(rule for rule in self._rules if wanted.takes(rule))

    def all_rules(self) -> list[Rule]:
        """In no order; a copy, for walks that leave the loop to others."""
        return list(self._by_key.values())

    def rules_about(self, resource: Resource, name: str) -> list[Rule]:
        """Those that speak of it, by its name, a prefix of it or a star."""
        return sorted(self._rules.about(resource, name))

    async def add_rules(self, rules: Iterable[Rule], by: "Guard | None" = None) -> None:
        """All or none; one that is there already stays. Durable, and in force here, when this returns.

        `by` is who asked for it, here and below; without it the node has done so itself.
        """
        named = {keys.access_rule(rule.digest): rule for rule in rules}
        wanted = {key: encode_rule(rule) for key, rule in named.items()}
        fresh: dict[str, bytes] = {}

        def plan() -> SecurityChange:
            nonlocal fresh
            fresh = {key: value for key, value in wanted.items() if key not in self._by_key}
            _check_count(len(fresh))
            if len(self._by_key) + len(fresh) > RULES_MAX:
                raise Invalid(f"there are {len(self._by_key)} access rules; {RULES_MAX} are possible")
            return SecurityChange(puts=fresh)

        await self._stored.change(plan)
        await self._note_rules(by, "rule added", [named[key] for key in fresh])

    async def delete_rules(self, wanted: Filter, by: "Guard | None" = None) -> list[Rule]:
        """Gives those that are gone: in the metastore, and from what is answered here."""
        found: dict[str, Rule] = {}

        def plan() -> SecurityChange:
            nonlocal found
            found = {key: rule for key, rule in self._by_key.items() if wanted.takes(rule)}
            _check_count(len(found))
            return SecurityChange(deletes=found.keys())

        await self._stored.change(plan)
        await self._note_rules(by, "rule deleted", list(found.values()))
        return sorted(found.values())

    # -- users ---------------------------------------------------------------------------------------------------

    async def change_verifiers(
        self,
        name: str,
        change: Callable[[Mapping[str, Verifier]], Mapping[str, Verifier]],
        by: "Guard | None" = None,
    ) -> None:
        """`change` gives what a user should have, from what they have; without any verifier the user is gone.

        It is asked again where somebody else changes the same user meanwhile, and may raise. Durable, and in force here, when
        this returns.
        """
        check_user_name(name)
        path = keys.user(name)
        before: Mapping[str, Verifier] = {}
        after: Mapping[str, Verifier] = {}

        def plan() -> SecurityChange:
            nonlocal before, after
            if name in self.users.not_understood:
                raise Invalid(f"user {name!r} was written by a newer version of headrace: change it there")
            before = self.users.verifiers(name)
            after = change(before)
            if not after:
                return SecurityChange(deletes=(path,))
            if not before and len(self.users) >= USERS_MAX:
                raise Invalid(f"there are {len(self.users)} users; {USERS_MAX} are possible")
            return SecurityChange(puts={path: encode_user(after, self.users.tokens(name))})

        await self._stored.change(plan)
        what = "user deleted" if not after else "password changed" if before else "user created"
        await self._note(by, change=what, user=name, before=sorted(before), after=sorted(after))

    async def make_token(
        self, name: str, *, now_ms: int, expires_ms: int = 0, note: str = "", by: "Guard | None" = None
    ) -> NewToken:
        """One more token of a user, who is told of it once. In force here when this returns."""
        made = new_token(self.chance)
        kept = ApiToken(made.digest, now_ms, expires_ms, note[:NOTE_LENGTH_MAX])

        def add(before: Mapping[str, ApiToken]) -> Mapping[str, ApiToken]:
            if len(before) >= TOKENS_PER_USER_MAX:
                raise Invalid(f"user {name!r} has {len(before)} tokens; {TOKENS_PER_USER_MAX} are possible")
            return {**before, made.id: kept}

        await self._change_tokens(name, add)
        await self._note(by, change="token made", user=name, token=made.id, expires_ms=expires_ms)
        return made

    async def revoke_token(self, name: str, token: str, by: "Guard | None" = None) -> None:
        """It opens nothing any more when this returns."""

        def remove(before: Mapping[str, ApiToken]) -> Mapping[str, ApiToken]:
            if token not in before:
                raise ResourceNotFound(f"user {name!r} has no token {token!r}")
            return {key: each for key, each in before.items() if key != token}

        await self._change_tokens(name, remove)
        await self._note(by, change="token revoked", user=name, token=token)

    async def _change_tokens(
        self, name: str, change: Callable[[Mapping[str, ApiToken]], Mapping[str, ApiToken]]
    ) -> None:
        path = keys.user(name)

        def plan() -> SecurityChange:
            if name in self.users.not_understood:
                raise Invalid(f"user {name!r} was written by a newer version of headrace: change it there")
            verifiers = self.users.verifiers(name)
            if not verifiers:
                raise ResourceNotFound(f"there is no user {name!r}")
            return SecurityChange(puts={path: encode_user(verifiers, change(self.users.tokens(name)))})

        await self._stored.change(plan)

    # -- quotas --------------------------------------------------------------------------------------------------

    async def change_limits(
        self, entity: Entity, change: Mapping[Limit, float | None], by: "Guard | None" = None
    ) -> None:
        """Set these limits, take those that are None away, leave the others. In force here when this returns."""
        path = keys.quota(user=entity.user, client=entity.client, ip=entity.ip)
        before: Mapping[Limit, float] = {}
        after: Mapping[Limit, float] = {}

        def plan() -> SecurityChange:
            nonlocal before, after
            before = self.quotas.limits(entity)
            after = {limit: value for limit, value in {**before, **change}.items() if value is not None}
            if after == before:
                return SecurityChange()
            if not after:
                return SecurityChange(deletes=(path,))
            if not before and len(self.quotas) >= QUOTAS_MAX:
                raise Invalid(f"there are {len(self.quotas)} quotas; {QUOTAS_MAX} are possible")
            return SecurityChange(puts={path: encode_limits(after)})

        await self._stored.change(plan)
        whose = {"user": entity.user, "client": entity.client, "ip": entity.ip}
        rows = [{limit.name: value for limit, value in each.items()} for each in (before, after)]
        await self._note(by, change="quota changed", **whose, before=rows[0], after=rows[1])

    # -- who did it ----------------------------------------------------------------------------------------------

    async def _note_rules(self, by: "Guard | None", change: str, rules: Sequence[Rule]) -> None:
        for rule in rules:
            self._note_one(
                by,
                change=change,
                rule={
                    "permission": rule.permission.name,
                    "principal": rule.principal,
                    "host": rule.host,
                    "operation": rule.operation.name,
                    "resource": rule.resource.name,
                    "name": rule.name,
                    "pattern": rule.pattern.name,
                },
            )

        if rules and self.audit is not None:
            await self.audit.settled()

    async def _note(self, by: "Guard | None", **what: object) -> None:
        """Kept when this returns."""
        self._note_one(by, **what)
        if self.audit is not None:
            await self.audit.settled()

    def _note_one(self, by: "Guard | None", **what: object) -> None:
        if self.audit is not None:
            self.audit.changed(None if by is None else by.principal, "" if by is None else by.host, what)

    async def ensure_administrator(self, name: str, password: str) -> bool:
        """Make a user who may do everything, unless there is one of that name; says whether it was made."""
        if self.users.verifiers(name):
            return False
        await self.add_rules(everything_for(Principal(name)))
        fresh = await self.users.new_verifiers(password)
        await self.change_verifiers(name, lambda before: before or fresh)
        return True

    def _apply(self, path: str, value: bytes | None) -> None:
        key = keys.parse(path)
        self._not_understood.pop(path, None)
        if isinstance(key, keys.UserKey):
            if not self.users.apply(key, value):
                self._not_understood[path] = f"user {key.name!r} cannot log in"
        elif isinstance(key, keys.AccessRuleKey):
            self._apply_rule(path, value)
        elif isinstance(key, keys.QuotaKey):
            self._apply_quota(path, key, value)
        elif path == keys.SECURITY_DECOY:
            if value is not None:
                self._has_decoy = True
                self.users.take_decoy(value)
        elif value is not None:
            self._not_understood[path] = "it is passed over"

    def _apply_quota(self, path: str, key: keys.QuotaKey, value: bytes | None) -> None:
        try:
            self.quotas.apply(Entity(key.user, key.client, key.ip), value)
        except (Corrupted, NewerFormat) as error:
            log.error("a quota is not understood", key=path, reason=str(error))
            self._not_understood[path] = "it limits nothing"

    def _apply_rule(self, path: str, value: bytes | None) -> None:
        former = self._by_key.pop(path, None)
        if former is not None:
            self._rules.remove(former)
        if self._closing.pop(path, None):
            self._closed = tuple(itertools.chain(*self._closing.values()))
        if value is None:
            return
        found = decode_rule(value)
        if isinstance(found, Rule):
            self._by_key[path] = found
            self._rules.add(found)
            return
        log.error("an access rule is not understood", key=path, reason=found.reason)
        self._not_understood[path] = "all that it may deny is denied" if found.denials else "it allows nothing"
        self._closing[path] = found.denials
        self._closed = tuple(itertools.chain(*self._closing.values()))

    def _tell_problems(self) -> None:
        if self._problems is None:
            return
        if not self._not_understood:
            self._problems.clear(_NOT_UNDERSTOOD)
            return
        path, effect = next(iter(self._not_understood.items()))
        self._problems.raise_problem(
            _NOT_UNDERSTOOD,
            f"{len(self._not_understood)} entries about access are not understood by this version, {path} among them ({effect}): "
            "start the version that wrote them",
        )

    def _changed(self) -> None:
        self.revision += 1
        self._tell_problems()
        for tell in self.on_change:
            tell()


class Guard:
    """The question as one connection asks it; it remembers the answers for as long as they hold."""

    __slots__ = ("_access", "_revision", "_verdicts", "host", "principal")

    def __init__(self, access: Access, principal: Principal, host: str) -> None:
        self._access = access
        self.principal = principal
        self.host = host
        self._revision = -1
        self._verdicts: dict[tuple[Operation, Resource, str], bool] = {}

    @property
    def is_on(self) -> bool:
        """Whether anything is asked at all."""
        return self._access.is_on

    @property
    def revision(self) -> int:
        return self._access.revision

    def may(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """For what somebody has asked to do: a no is counted, and said."""
        if not self._access.is_on:
            return True
        is_new, verdict = self._verdict(operation, resource, name)
        audit = self._access.audit
        if audit is not None and (verdict or is_new):
            audit.decided(self.principal, self.host, operation, resource, name, is_allowed=verdict)
        if not verdict:
            self._access.denials_total += 1
            if is_new:
                log.info(
                    "access denied",
                    principal=str(self.principal),
                    host=self.host,
                    operation=operation.name,
                    resource=resource.name,
                    name=name,
                )
        return verdict

    def sees(self, operation: Operation, resource: Resource, name: str = CLUSTER_NAME) -> bool:
        """For what is left out of an answer where the answer is no: nobody has asked for it by name."""
        return not self._access.is_on or self._verdict(operation, resource, name)[1]

    def may_create_topic(self, name: str) -> bool:
        """Either right will do: topics in general, or this one."""
        if not self.sees(Operation.CREATE, Resource.CLUSTER):
            return self.may(Operation.CREATE, Resource.TOPIC, name)
        if self._access.audit is not None and self.is_on:
            self._access.audit.decided(
                self.principal, self.host, Operation.CREATE, Resource.TOPIC, name, is_allowed=True
            )
        return True

    def may_any(self, operation: Operation, resource: Resource) -> bool:
        return self._access.may_any(self.principal, self.host, operation, resource)

    def operations(self, resource: Resource, name: str = CLUSTER_NAME) -> int:
        """Everything that may be done to it, as Kafka's bit field."""
        return sum(1 << each for each in SUPPORTED[resource] if self.sees(each, resource, name))

    def _verdict(self, operation: Operation, resource: Resource, name: str) -> tuple[bool, bool]:
        """Whether it was asked for the first time, and the answer."""
        access = self._access
        if self._revision != access.revision or len(self._verdicts) >= _VERDICTS_MAX:
            self._verdicts.clear()
            self._revision = access.revision
        key = (operation, resource, name)
        verdict = self._verdicts.get(key)
        if verdict is not None:
            return False, verdict
        verdict = self._verdicts[key] = access.may(self.principal, self.host, operation, resource, name)
        return True, verdict


def everything_for(principal: Principal) -> list[Rule]:
    """The rules of an administrator."""
    return [
        Rule(
            resource=resource,
            name=CLUSTER_NAME if resource is Resource.CLUSTER else WILDCARD,
            principal=str(principal),
            operation=Operation.ALL,
        )
        for resource in SUPPORTED
    ]


def _tokens(settings: SecuritySettings) -> "Tokens":
    """Loaded only where somebody has said whose tokens count: with all of its cryptography it would be a tenth of every start."""
    from headrace.broker.access.tokens import Tokens

    return Tokens(settings)


def _check_count(count: int) -> None:
    if count > _CHANGES_AT_ONCE:
        raise Invalid(f"{count} access rules at once; {_CHANGES_AT_ONCE} are possible")
