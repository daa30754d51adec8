"""The PL/pgSQL functions behind the triggers of `db_rules.py`, as text."""

# ruff: noqa: S608  (the text is made of constants of this code base)

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agentcore.lifecycle import ACTION_TERMINAL, RUN_TERMINAL


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))


def refuse(*, app: str) -> str:
    """A function that always refuses; its first argument is the message.

    The other arguments are columns: those that changed are named in the message.
    """
    return _refusal(f"{app}_refuse")


def refuse_changed(*, app: str) -> str:
    """The same, but it lets a row through of which none of the columns changed: a WHEN clause need
    not compare them, and that is read anew for each statement.
    """
    return _refusal(f"{app}_refuse_changed", "\n  IF changed IS NULL THEN RETURN NEW; END IF;")


def _refusal(name: str, unless: str = "") -> str:
    return f"""\
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  old_row jsonb;
  new_row jsonb;
  changed text;
BEGIN
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN new_row := to_jsonb(NEW); END IF;
  SELECT string_agg(name, ', ') INTO changed FROM unnest(TG_ARGV[1:]) AS name
   WHERE old_row -> name IS DISTINCT FROM new_row -> name;{unless}
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = concat_ws(' ',
      TG_TABLE_NAME, COALESCE(old_row, new_row) ->> 'id', TG_OP, 'refused:', TG_ARGV[0],
      '(' || NULLIF(concat_ws(' -> ', old_row ->> 'state', new_row ->> 'state'), '') || ')',
      '[' || changed || ']');
END $$;
"""


_REVISED = """
    IF NEW.revision <= OLD.revision THEN
      RAISE EXCEPTION USING
        ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = '{rule}',
        MESSAGE = format('%s %s: a move raises the revision (%s -> %s)',
                         TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
    END IF;"""


def move(*, table: str, pairs: Iterable[tuple[str, str]], revised: bool = True) -> str:
    """A function that accepts exactly `pairs` of (old state, new state).

    `revised`: a move has to raise the revision; the refusal of one that does not is named after
    that rule.
    """
    targets: defaultdict[str, list[str]] = defaultdict(list)
    for old, new in pairs:
        targets[str(old)].append(str(new))
    cases = "\n".join(
        f"    WHEN '{old}' THEN NEW.state IN ({_quoted(targets[old])})" for old in sorted(targets)
    )
    raised = _REVISED.format(rule=f"{table.split('_', 1)[1]}_revision") if revised else ""
    return f"""\
CREATE FUNCTION {table}_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (CASE OLD.state
{cases}
    ELSE false
  END) THEN{raised}
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('%s %s: illegal move %s -> %s', TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
END $$;
"""


def whole(*, table: str, checks: Mapping[str, str], counts: Sequence[str]) -> str:
    """A function that refuses a row of `table` that breaks one of `checks` (name -> condition on
    NEW; as with a CHECK, one that is NULL holds) or has a number of `counts` below zero.

    One expression says yes: plpgsql keeps it between statements, but makes each one ready anew in
    each transaction. Only a refusal asks which it was.
    """
    one = "\n    AND ".join(f"({condition})" for condition in checks.values())
    numbers = ", ".join(f"NEW.{name}" for name in counts)
    named = {**checks, **{f"{table}_{name}_check": f"NEW.{name} >= 0" for name in counts}}
    which = "\n".join(
        f"    WHEN ({text}) IS FALSE THEN '{name}'" for name, text in sorted(named.items())
    )
    return f"""\
CREATE FUNCTION {table}_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text;
BEGIN
  IF ({one}
    AND LEAST({numbers}) >= 0
  ) IS NOT FALSE THEN
    RETURN NEW;
  END IF;
  broken := CASE
{which}
  END;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = broken,
    MESSAGE = format('new row for relation "%s" violates check constraint "%s"',
                     TG_TABLE_NAME, broken);
END $$;
"""


def run_settled() -> str:
    """A function that refuses the end of a run with an action or a child run that has not ended.

    The caller holds the run's row lock; an action that starts beside it waits for that lock in
    `run_allows`, so neither can miss the other. A child begins only with an action.
    """
    return f"""\
CREATE FUNCTION runs_run_settled() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  live record;
BEGIN
  SELECT id, state INTO live FROM runs_actionjournal
   WHERE run_id = NEW.id AND ended_at IS NULL AND state NOT IN ({_quoted(ACTION_TERMINAL)})
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING
      ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
      MESSAGE = format('runs_run %s: %s (%s -> %s; action %s is %s)',
                       NEW.id, TG_ARGV[0], OLD.state, NEW.state, live.id, live.state);
  END IF;
  SELECT id, state INTO live FROM runs_run
   WHERE parent_id = NEW.id AND ended_at IS NULL LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING
      ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
      MESSAGE = format('runs_run %s: %s (%s -> %s; its child %s is %s)',
                       NEW.id, TG_ARGV[0], OLD.state, NEW.state, live.id, live.state);
  END IF;
  RETURN NULL;
END $$;
"""


def run_allows() -> str:
    """A function that asks the run of a new or starting row for leave.

    The second argument says how much is asked: `lives` (the run is not terminal), `fenced` (and
    its fence is the row's) or `starts` (it has no stop reason, and a write is none of a dry run).
    The share lock makes a transaction that ends, stops or claims the run come before or after this
    one.
    """
    return f"""\
CREATE FUNCTION runs_run_allows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  run record;
  problem text;
BEGIN
  SELECT state, stop_reason, fence, dry_run INTO run FROM runs_run WHERE id = NEW.run_id FOR SHARE;
  IF run.state IN ({_quoted(RUN_TERMINAL)}) THEN
    problem := format('the run is %s', run.state);
  ELSIF TG_ARGV[1] <> 'lives' AND run.fence IS DISTINCT FROM NEW.fence THEN
    problem := format('fence %s, the run has %s', NEW.fence, run.fence);
  ELSIF TG_ARGV[1] = 'starts' AND run.stop_reason IS NOT NULL THEN
    problem := format('the run stops: %s', run.stop_reason);
  ELSIF TG_ARGV[1] = 'starts' AND run.dry_run
        AND COALESCE(to_jsonb(NEW) ->> 'effect', 'READ') <> 'READ' THEN
    problem := 'the run is a dry run';
  ELSE
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('%s %s: %s (%s)', TG_TABLE_NAME, NEW.id, TG_ARGV[0], problem);
END $$;
"""


def run_descends() -> str:
    """A function that asks the parent of a new child run for leave: the action that it is runs, the
    parent does not stop, and who asks is the same.
    """
    return """\
CREATE FUNCTION runs_run_descends() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  parent record;
  action record;
  problem text;
BEGIN
  SELECT tenant, principal, on_behalf_of, dry_run, stop_reason, ended_at,
         COALESCE(root_id, id) AS root
    INTO parent FROM runs_run WHERE id = NEW.parent_id FOR SHARE;
  SELECT run_id, state, contract INTO action FROM runs_actionjournal WHERE id = NEW.parent_action;
  IF parent.ended_at IS NOT NULL OR parent.stop_reason IS NOT NULL THEN
    problem := 'the parent has ended or stops';
  ELSIF action.run_id IS DISTINCT FROM NEW.parent_id OR action.state <> 'RUNNING'
        OR action.contract <> 'CHILD' THEN
    problem := 'its action is none that runs in the parent';
  ELSIF (parent.root, parent.tenant, parent.principal, parent.on_behalf_of, parent.dry_run)
        IS DISTINCT FROM
        (NEW.root_id, NEW.tenant, NEW.principal, NEW.on_behalf_of, NEW.dry_run) THEN
    problem := 'it does not act for whom the parent acts';
  ELSE
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('runs_run %s: %s (%s)', NEW.id, TG_ARGV[0], problem);
END $$;
"""
