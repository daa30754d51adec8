"""What the pages say about files, commands, settings, codes and tests is so. No server needed."""

from __future__ import annotations

import re
import subprocess
from datetime import timedelta

import pytest

from config.options import Options
from runs.api.auth import SCOPES
from runs.api.errors import CODES
from tests.docs.pages import ROOT, anchors, blocks, code_words, links, pages, prose, table_rows
from tools.rules import FROM_SIGNATURE

_PATH = re.compile(
    r"(?:agentcore|tools|approvals|runs|config|tests|docs|examples|bench|\.ci)/[\w./-]*"
)
_OUTSIDE = ("https://", "http://", "mailto:")


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page: str) -> None:
    for link in links(page):
        if link.startswith(_OUTSIDE):
            continue
        name, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), f"{page}: {link}"


@pytest.mark.parametrize("page", pages())
def test_every_path_that_is_named_exists(page: str) -> None:
    for word in code_words(page):
        name = word.partition("::")[0]
        if _PATH.fullmatch(name):
            assert (ROOT / name).exists(), f"{page}: {name}"


def test_the_first_screen_of_the_readme_has_two_commands() -> None:
    first = blocks("README.md")[0]
    commands = [line.partition("#")[0].strip() for line in first.text.splitlines()]
    assert commands == ["make demo", "make test"]
    assert first.line < 15
    opening = prose("README.md").split("\n\n")[1]
    assert "paused worker" in opening, "both limits stand in the first paragraph"
    assert "asynchronous replica" in opening
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_make_help_lists_every_target_that_is_named() -> None:
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    everywhere = "\n".join(pages().values())
    named = set(re.findall(r"(?:`|^|^    )make ([a-z0-9-]+)", everywhere, re.MULTILINE))
    assert {"demo", "test", "requirements"} <= named
    for target in named:
        assert f"make {target} " in listed, target


def test_the_settings_table_has_every_option_with_its_default() -> None:
    rows = {row[0].strip("`"): row[1] for row in table_rows("docs/operations.md", "Environment")}
    wanted = {
        f"AGENTCORE_{name.upper()}": _shown(field.get_default(call_default_factory=True))
        for name, field in Options.model_fields.items()
    }
    assert {name: rows.get(name) for name in wanted} == wanted


def test_every_variable_that_is_read_is_in_the_tables() -> None:
    named = {
        word
        for row in table_rows("docs/operations.md", "Environment")
        for word in re.findall(r"`([A-Z_]+)`", row[0])
    }
    found = {
        variable
        for path in (ROOT / "config").rglob("*.py")
        for variable in re.findall(r'"(AGENTCORE_[A-Z_]+|SECRET_KEY)"', path.read_text("utf-8"))
    }
    assert "AGENTCORE_ENV" in found
    assert found - named == set()


def _shown(default: object) -> str:
    if isinstance(default, timedelta):
        default = default.total_seconds()
    if isinstance(default, int | float):
        return f"{default:g}"
    scalar = isinstance(default, str | bytes) or not default
    return str(default or "(none)") if scalar else "(built in)"


def test_the_tables_of_rest_have_every_code_and_scope() -> None:
    codes = {row[0].strip("`"): int(row[1]) for row in table_rows("docs/rest.md", "Code")}
    assert codes == {code: status for code, (status, _) in CODES.items()}
    scopes = {row[0].strip("`") for row in table_rows("docs/rest.md", "Scope")}
    assert scopes - {"any other"} == set(SCOPES)


def test_the_findings_of_a_tool_are_all_named() -> None:
    source = (ROOT / "tools" / "rules.py").read_text("utf-8")
    for code in FROM_SIGNATURE | set(re.findall(r'"(E\d{3})"', source)):
        assert f"{code} " in prose("docs/tools.md"), code


def test_what_is_claimed_to_survive_is_a_test() -> None:
    rows = table_rows("README.md", "What happens")
    assert len(rows) > 5
    for row in rows:
        file, _, name = row[2].strip("`").partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), row[2]


def test_each_decision_has_its_three_parts_and_a_number_of_its_own() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").iterdir())
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for name in names:
        text = pages()[f"docs/decisions/{name}"]
        assert text.startswith(f"# {name[:4]}: "), name
        for part in ("Context", "Decision", "Consequences"):
            assert f"**{part}.**" in text, f"{name}: {part}"
