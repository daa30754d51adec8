"""One door for each state, one place that publishes, no clock in the rules, no swallowed error."""

from __future__ import annotations

import ast
import re

from tests.architecture.source import (
    BESIDE,
    PRODUCT,
    called,
    name_of,
    nodes,
    place,
    text_of,
)

GUARDED_COLUMNS = {"state", "revision", "fence"}
DOORS = {"runs/transitions.py", "approvals/records.py"}
TABLE_DOORS = {
    "runs_run": "runs/transitions.py",
    "runs_actionjournal": "runs/transitions.py",
    "approvals_approval": "approvals/records.py",
}
PUBLISHER = "runs/dispatch.py"
PUBLISHING = {"apply_async", "send_task", "delay", "delay_on_commit", "apply_async_on_commit"}
_UPDATE = re.compile(
    r'\bUPDATE\s+(?:ONLY\s+)?"?(?P<table>\w+|\?)"?\s+(?:AS\s+)?(?:\w+\s+)?SET\s+(?P<sets>.*?)'
    r"(?=\bWHERE\b|\bFROM\b|\bRETURNING\b|$)",
    re.IGNORECASE | re.DOTALL,
)
_SET_GUARDED = re.compile(r'(?:^|[\s,("])(state|revision|fence)"?\s*=', re.IGNORECASE)


def _named_columns(node: ast.Call) -> set[str]:
    """Columns that a call names: keywords, and the strings and dict keys inside its arguments."""
    names = {keyword.arg or "" for keyword in node.keywords}
    for keyword in node.keywords:
        if keyword.arg in {"update_fields", "fields", "sets"}:
            names |= {text_of(inner) for inner in ast.walk(keyword.value)}
    for argument in node.args:
        if isinstance(argument, ast.List | ast.Tuple | ast.Set):
            names |= {text_of(item) for item in argument.elts}
    return names & GUARDED_COLUMNS


def _writes_through_orm(node: ast.AST) -> bool:
    match called(node):
        case "update" | "bulk_update" | "save" | "asave" | "aupdate" | "update_or_create":
            return isinstance(node, ast.Call) and bool(_named_columns(node))
        case "Run" | "ActionJournal":
            assert isinstance(node, ast.Call)
            is_model = isinstance(node.func, ast.Name)
            return is_model and bool(_named_columns(node) & {"state", "revision"})
    return False


def test_states_revisions_and_fences_are_written_in_one_place() -> None:
    outside = [
        place(path, node)
        for path, node in nodes(*PRODUCT, *BESIDE)
        if name_of(path) not in DOORS and _writes_through_orm(node)
    ]
    assert outside == [], (
        "runs/transitions.py and approvals/records.py are the only doors to a state: they write "
        "the event beside it"
    )


def test_no_whole_row_is_saved_over_a_state() -> None:
    whole = [
        place(path, node)
        for path, node in nodes("runs", "approvals")
        if called(node) == "save"
        and isinstance(node, ast.Call)
        and not {keyword.arg for keyword in node.keywords} & {"update_fields", "force_insert"}
    ]
    assert whole == [], "`save()` writes every column, also a state read before: name the fields"


def _sql_writes(text: str, *, module: str) -> list[str]:
    """Tables whose guarded columns an SQL text sets although `module` is not their door."""
    return [
        match["table"]
        for match in _UPDATE.finditer(text)
        if _SET_GUARDED.search(match["sets"])
        and TABLE_DOORS.get(match["table"], "" if match["table"] != "?" else "?")
        not in ("", module)
    ]


def test_no_sql_text_writes_a_state_outside_its_door() -> None:
    outside = [
        f"{place(path, node)} {table}"
        for path, node in nodes(*PRODUCT, *BESIDE)
        for table in _sql_writes(text_of(node), module=name_of(path))
    ]
    assert outside == [], "SQL that sets a state belongs to runs/transitions.py"


def test_the_search_for_sql_finds_what_it_should() -> None:
    found = "UPDATE runs_run SET hinted_at = now(), state = %s WHERE id = %s"
    assert _sql_writes(found, module="runs/leases.py") == ["runs_run"]
    assert _sql_writes(found, module="runs/transitions.py") == []
    assert _sql_writes('UPDATE "runs_run" AS r SET "fence" = 1', module="x") == ["runs_run"]
    quiet = "UPDATE runs_run SET hinted_at = now() WHERE state = %s AND fence = 1"
    assert _sql_writes(quiet, module="runs/leases.py") == []


def test_agentcore_reads_no_clock() -> None:
    clocks = {"now", "utcnow", "today", "monotonic", "perf_counter", "time", "time_ns", "sleep"}
    owners = {"time", "datetime", "date", "timezone", "dt"}
    reads = []
    for path, node in nodes("agentcore"):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value).rsplit(".", 1)[-1]
            if owner in owners and node.func.attr in clocks:
                reads.append(place(path, node))
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            reads.append(place(path, node))
    assert reads == [], (
        "`now` is an argument: a rule that reads a clock cannot be tested or replayed"
    )


def test_nothing_publishes_but_dispatch() -> None:
    outside = [
        f"{place(path, node)} {called(node)}"
        for path, node in nodes(*PRODUCT)
        if called(node) in PUBLISHING and name_of(path) != PUBLISHER
    ]
    assert outside == [], f"{PUBLISHER} publishes after the commit and survives a dead broker"


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_broad(item) for item in kind.elts)
    return kind is None or ast.unparse(kind) in {"Exception", "BaseException"}


def _says_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(line, ast.Pass | ast.Continue)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in body
    )


def test_no_error_is_swallowed() -> None:
    swallowed = [
        place(path, node)
        for path, node in nodes(*PRODUCT, *BESIDE, "tests")
        if (
            isinstance(node, ast.ExceptHandler)
            and _is_broad(node.type)
            and _says_nothing(node.body)
        )
        or (
            called(node) == "suppress"
            and isinstance(node, ast.Call)
            and any(_is_broad(argument) for argument in node.args)
        )
    ]
    assert swallowed == [], "name the error that is expected; the others are news"
