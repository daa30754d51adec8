"""The frozen SQL, the live catalog, the models and `lifecycle.py` say the same."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from runs.db_rules import APPS, FILLFACTOR, FROZEN_IN, functions, render, rules

ROOT = Path(__file__).resolve().parents[2]
LAST_WITH_FUNCTIONS = {"approvals": "0002_rules", "runs": "0015_short_rules"}
"""The newest migration of each app that makes all its functions."""


@pytest.mark.parametrize("app", APPS)
def test_the_frozen_sql_is_what_the_tables_say_today(app: str) -> None:
    frozen = (ROOT / FROZEN_IN[app]).read_text(encoding="utf-8")
    assert frozen == render(app=app), "run `python -m runs.db_rules` (before a release), or add a "
    "migration with the new text"


def _catalog(schema: str, tables: list[str]) -> dict[str, Any]:
    """Triggers (name -> definition) and trigger functions (name -> body) of one schema."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.tgname, pg_get_triggerdef(t.oid, true) FROM pg_trigger t "
            "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE NOT t.tgisinternal AND n.nspname = %s AND c.relname = ANY(%s)",
            [schema, tables],
        )
        triggers = {name: text.replace(f"{schema}.", "") for name, text in cursor.fetchall()}
        cursor.execute(
            "SELECT p.proname, p.prosrc FROM pg_proc p "
            "JOIN pg_namespace n ON n.oid = p.pronamespace "
            "WHERE n.nspname = %s AND p.prorettype = 'trigger'::regtype",
            [schema],
        )
        return {"triggers": triggers, "functions": dict(cursor.fetchall())}


@pytest.mark.django_db
def test_the_live_catalog_is_what_the_tables_say_today() -> None:
    """Today's text is run in a schema of its own beside copies of the tables, then compared."""
    tables = sorted({rule.table for app in APPS for rule in rules(app=app)})
    live = _catalog("public", tables)
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA today")
        for table in tables:
            cursor.execute(f"CREATE TABLE today.{table} (LIKE public.{table})")
        cursor.execute("SET LOCAL search_path = today")
        for app in APPS:
            cursor.execute(render(app=app))
        cursor.execute("SET LOCAL search_path = public")
    today = _catalog("today", tables)
    assert live["triggers"] == today["triggers"]
    assert live["functions"] == today["functions"]


@pytest.mark.django_db
def test_rows_that_are_rewritten_leave_space_on_their_pages() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE 'fillfactor=80' = ANY(reloptions) ORDER BY relname"
        )
        assert [row[0] for row in cursor.fetchall()] == sorted(FILLFACTOR["runs"])


@pytest.mark.django_db
def test_the_models_have_no_change_without_a_migration() -> None:
    call_command("makemigrations", "runs", "approvals", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize("app", APPS)
def test_migrations_are_linear(app: str) -> None:
    loader = MigrationLoader(None, ignore_no_migrations=True)
    nodes = [key for key in loader.graph.nodes if key[0] == app]
    assert len(loader.graph.leaf_nodes(app)) == 1, (
        "two people made a migration: put one after the other"
    )
    numbers = Counter(name.split("_")[0] for _, name in nodes)
    assert sorted(numbers) == [f"{n + 1:04d}" for n in range(len(nodes))]


@pytest.mark.parametrize("app", APPS)
def test_a_migration_takes_away_what_it_made(app: str) -> None:
    migration = importlib.import_module(f"{app}.migrations.{LAST_WITH_FUNCTIONS[app]}")
    assert list(migration.FUNCTIONS) == list(functions(app=app))
