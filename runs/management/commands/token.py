"""`manage.py token`: make, list and revoke the bearer tokens of the API."""

from __future__ import annotations

import argparse
import re
import secrets
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q

from runs.access_models import ApiToken
from runs.agents import all_agents
from runs.api.auth import ROLE, SCOPES, STAFF_TENANT, token_hash
from runs.selectors import database_clock
from tools.registry import all_tools

PREFIX = "agc_"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SCOPE = re.compile(r"[a-z][a-z0-9_]*(?:[.:][a-z0-9_]+)*")

SCOPE_HELP = "\n".join(f"  {name:<12} {text}" for name, text in SCOPES.items())
EPILOG = f"""
Scopes of the API:
{SCOPE_HELP}
`role:NAME` lets a token with approvals:decide decide where a policy asks for the group NAME. Any
other scope is handed to the runs that the token starts: it permits the tools that ask for it.

Examples:
  manage.py token create billing --scope runs:write --scope runs:read --scope events:read
  manage.py token create billing --scope runs:read --expires-in 30d --agent refund_desk
  manage.py token create desk --scope approvals:read --scope approvals:decide --scope role:finance
  manage.py token list
  manage.py token revoke agc_3fQ2xY7a
"""


class Command(BaseCommand):
    help = "Make, list and revoke bearer tokens of the REST API. Only a hash of a token is stored."

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, epilog=EPILOG, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="create|list|revoke")
        create = verbs.add_parser("create", help="make a token and print it, this once")
        create.add_argument("name", help="who uses it; runs are started by token:NAME")
        create.add_argument(
            "--scope", action="append", default=[], help="what it may do; repeat it for more"
        )
        create.add_argument(
            "--agent",
            action="append",
            default=[],
            help="the only agents it may start and see; repeat it for more; without: all",
        )
        create.add_argument("--tenant", default=STAFF_TENANT, help="default: %(default)s")
        create.add_argument("--expires-in", metavar="30d", help="minutes m, hours h or days d")
        create.add_argument(
            "--rotate",
            action="store_true",
            help="allow a second live token of this name, to replace the first without a pause",
        )
        verbs.add_parser("list", help="show every token, without its secret")
        revoke = verbs.add_parser("revoke", help="make tokens useless from now on")
        revoke.add_argument("which", help="a prefix as `token list` shows it, or a name")
        revoke.add_argument("--tenant", help="only tokens of this tenant")

    def handle(self, *_: Any, **options: Any) -> None:
        verbs = {"create": self._create, "list": self._list, "revoke": self._revoke}
        verbs[options["verb"]](options)

    def _create(self, options: dict[str, Any]) -> None:
        name, tenant = options["name"], options["tenant"]
        if not _NAME.fullmatch(name) or not _TENANT.fullmatch(tenant):
            raise CommandError("A name or tenant has letters, digits, '.', '_' and '-' only.")
        scopes, agents = self._scopes(options["scope"]), self._agents(options["agent"])
        now = database_clock()
        live = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
        same = ApiToken.objects.filter(live, name=name, tenant=tenant, revoked_at__isnull=True)
        if same.exists() and not options["rotate"]:
            raise CommandError(
                f"A token {name!r} of tenant {tenant!r} is in use. Choose another name, revoke it, "
                "or add --rotate to have two for a while."
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        ApiToken.objects.create(
            name=name,
            tenant=tenant,
            prefix=secret[:12],
            sha256=token_hash(secret),
            scopes=scopes,
            agents=agents,
            created_at=now,
            expires_at=_expiry(options["expires_in"], now),
        )
        self.stdout.write(secret)
        self.stderr.write("Store it now: it cannot be shown again.")

    def _scopes(self, asked: list[str]) -> list[str]:
        if not asked:
            raise CommandError(f"Give at least one --scope. Scopes of the API:\n{SCOPE_HELP}")
        of_tools = {scope for spec in all_tools() for scope in spec.scopes}
        for scope in asked:
            if scope.startswith(ROLE):
                self._check_role(scope.removeprefix(ROLE))
                continue
            if not _SCOPE.fullmatch(scope):
                raise CommandError(f"{scope!r} is not a scope: lower-case words with ':' or '.'.")
            if scope in SCOPES or scope in of_tools:
                continue
            if ":" in scope:
                raise CommandError(
                    f"Neither the API nor a tool has the scope {scope!r}. Scopes of the API:\n"
                    f"{SCOPE_HELP}"
                )
            self.stderr.write(f"Note: no installed tool asks for the scope {scope!r}.")
        return list(dict.fromkeys(asked))

    def _check_role(self, name: str) -> None:
        if not name or len(name) > 150:
            raise CommandError("Name the group: role:NAME.")
        if not Group.objects.filter(name=name).exists():
            self.stderr.write(f"Note: there is no group {name!r} (yet).")

    def _agents(self, asked: list[str]) -> list[str]:
        known = [agent.name for agent in all_agents()]
        for name in asked:
            if name not in known:
                raise CommandError(
                    f"There is no agent {name!r}. Known agents: {', '.join(known) or 'none'}."
                )
        return list(dict.fromkeys(asked))

    def _list(self, _: dict[str, Any]) -> None:
        now = database_clock()
        for token in ApiToken.objects.order_by("tenant", "name", "created_at"):
            used = f"{token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "never"
            self.stdout.write(
                f"{token.prefix}  {_standing(token, now):<18}  {token.tenant}/{token.name}  "
                f"used: {used}  agents: {' '.join(token.agents) or 'all'}  "
                f"scopes: {' '.join(token.scopes)}"
            )

    def _revoke(self, options: dict[str, Any]) -> None:
        which = options["which"]
        rows = ApiToken.objects.filter(Q(prefix=which) | Q(name=which), revoked_at__isnull=True)
        if options["tenant"]:
            rows = rows.filter(tenant=options["tenant"])
        elif rows.values("tenant").distinct().count() > 1:
            raise CommandError(f"Several tenants have a token {which!r}. Add --tenant.")
        changed = rows.update(revoked_at=database_clock())
        if not changed:
            raise CommandError(f"No live token {which!r}. `manage.py token list` shows them.")
        self.stdout.write(f"Revoked {changed} token{'s' if changed > 1 else ''}.")


def _standing(token: ApiToken, now: Any) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "live"
    return "expired" if token.expires_at <= now else f"until {token.expires_at:%Y-%m-%d}"


def _expiry(text: str | None, now: Any) -> Any:
    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhd])", text)
    if not match:
        raise CommandError("--expires-in is a number with m, h or d, for example 30d.")
    return now + timedelta(**{_UNITS[match[2]]: int(match[1])})
