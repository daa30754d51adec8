"""One rule of a table as a trigger; `db_rules.py` lists them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HOT = ("runs_run", "runs_actionjournal", "runs_attempt", "runs_turn")
"""Tables whose rules about an UPDATE are asked after it. Where one is asked before it PostgreSQL
locks each row first and writes that to its log: 29 times in a run of five turns, 1 kB."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One trigger. `says` is the message, `columns` are named in it when they changed; an UPDATE
    that sets none of them does not ask (`UPDATE OF`).

    `function` is the name without the app's prefix; `after` makes it a constraint trigger that
    fires at the end of the statement (or, when the transaction asks for it, at COMMIT).
    """

    table: str
    name: str
    on: str
    when: str
    says: str
    columns: tuple[str, ...] = ()
    function: str = "refuse"
    after: bool = False

    @property
    def app(self) -> str:
        return self.table.split("_", 1)[0]

    def sql(self) -> str:
        level = "STATEMENT" if self.on == "TRUNCATE" else "ROW"
        some = self.on == "UPDATE" and self.columns
        on = f"UPDATE OF {', '.join(self.columns)}" if some else self.on
        time = "AFTER" if self.table in HOT and "UPDATE" in self.on else "BEFORE"
        head = f"CREATE TRIGGER {self.name} {time} {on} ON {self.table}"
        if self.after:
            head = (
                f"CREATE CONSTRAINT TRIGGER {self.name} AFTER {on} ON {self.table}\n"
                f"DEFERRABLE INITIALLY IMMEDIATE"
            )
        arguments = ", ".join(quoted(text) for text in (self.says, *self.columns))
        when = f"\nWHEN ({self.when})" if self.when else ""
        call = f"EXECUTE FUNCTION {self.app}_{self.function}({arguments})"
        return f"{head}\nFOR EACH {level}{when}\n{call};\n"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def listed(values: Iterable[str]) -> str:
    return ", ".join(quoted(str(value)) for value in sorted(values))


def changed(columns: Iterable[str]) -> str:
    return "\n  OR ".join(f"OLD.{name} IS DISTINCT FROM NEW.{name}" for name in columns)
