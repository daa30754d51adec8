-- Rules of runs. Written by `python -m runs.db_rules`; not edited by hand.

CREATE FUNCTION runs_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  old_row jsonb;
  new_row jsonb;
  changed text;
BEGIN
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN new_row := to_jsonb(NEW); END IF;
  SELECT string_agg(name, ', ') INTO changed FROM unnest(TG_ARGV[1:]) AS name
   WHERE old_row -> name IS DISTINCT FROM new_row -> name;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = concat_ws(' ',
      TG_TABLE_NAME, COALESCE(old_row, new_row) ->> 'id', TG_OP, 'refused:', TG_ARGV[0],
      '(' || NULLIF(concat_ws(' -> ', old_row ->> 'state', new_row ->> 'state'), '') || ')',
      '[' || changed || ']');
END $$;

CREATE FUNCTION runs_refuse_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  old_row jsonb;
  new_row jsonb;
  changed text;
BEGIN
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
  IF TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN new_row := to_jsonb(NEW); END IF;
  SELECT string_agg(name, ', ') INTO changed FROM unnest(TG_ARGV[1:]) AS name
   WHERE old_row -> name IS DISTINCT FROM new_row -> name;
  IF changed IS NULL THEN RETURN NEW; END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = concat_ws(' ',
      TG_TABLE_NAME, COALESCE(old_row, new_row) ->> 'id', TG_OP, 'refused:', TG_ARGV[0],
      '(' || NULLIF(concat_ws(' -> ', old_row ->> 'state', new_row ->> 'state'), '') || ')',
      '[' || changed || ']');
END $$;

CREATE FUNCTION runs_run_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (CASE OLD.state
    WHEN 'CALLING_MODEL' THEN NEW.state IN ('CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'RECONCILING', 'RETRY_WAIT', 'SUSPENDED', 'VERIFYING', 'WAITING_APPROVAL', 'WAITING_CHILD')
    WHEN 'CANCELLING' THEN NEW.state IN ('CANCELLED')
    WHEN 'COMPILING_CONTEXT' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'FAILED', 'INCOMPLETE', 'SUSPENDED')
    WHEN 'DISPATCHING_TOOLS' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'RECONCILING', 'RETRY_WAIT', 'SUSPENDED', 'VERIFYING', 'WAITING_APPROVAL', 'WAITING_CHILD')
    WHEN 'OBSERVING' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'FAILED', 'INCOMPLETE', 'SUSPENDED', 'VERIFYING')
    WHEN 'QUEUED' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'FAILED', 'INCOMPLETE', 'SUSPENDED')
    WHEN 'RECONCILING' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'RETRY_WAIT', 'SUSPENDED', 'WAITING_APPROVAL', 'WAITING_CHILD')
    WHEN 'RETRY_WAIT' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'QUEUED', 'RECONCILING', 'SUSPENDED', 'VERIFYING')
    WHEN 'SUSPENDED' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'QUEUED', 'RECONCILING', 'VERIFYING', 'WAITING_APPROVAL', 'WAITING_CHILD')
    WHEN 'VERIFYING' THEN NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'FAILED', 'INCOMPLETE', 'RETRY_WAIT', 'SUSPENDED')
    WHEN 'WAITING_APPROVAL' THEN NEW.state IN ('CANCELLED', 'CANCELLING', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'SUSPENDED')
    WHEN 'WAITING_CHILD' THEN NEW.state IN ('CANCELLED', 'CANCELLING', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'SUSPENDED')
    ELSE false
  END) THEN
    IF NEW.revision <= OLD.revision THEN
      RAISE EXCEPTION USING
        ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = 'run_revision',
        MESSAGE = format('%s %s: a move raises the revision (%s -> %s)',
                         TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
    END IF;
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('%s %s: illegal move %s -> %s', TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
END $$;

CREATE FUNCTION runs_actionjournal_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (CASE OLD.state
    WHEN 'AWAITING_APPROVAL' THEN NEW.state IN ('EXPIRED', 'READY', 'REJECTED', 'VOIDED')
    WHEN 'NEEDS_HUMAN' THEN NEW.state IN ('ABANDONED', 'FAILED', 'PENDING', 'RUNNING', 'SUCCEEDED', 'UNKNOWN')
    WHEN 'PENDING' THEN NEW.state IN ('FAILED', 'NEEDS_HUMAN', 'SUCCEEDED')
    WHEN 'PROPOSED' THEN NEW.state IN ('AWAITING_APPROVAL', 'DENIED', 'READY', 'RUNNING', 'VOIDED')
    WHEN 'READY' THEN NEW.state IN ('AWAITING_APPROVAL', 'DENIED', 'EXPIRED', 'RUNNING', 'VOIDED')
    WHEN 'RUNNING' THEN NEW.state IN ('FAILED', 'NEEDS_HUMAN', 'PENDING', 'SUCCEEDED', 'UNKNOWN', 'VOIDED')
    WHEN 'UNKNOWN' THEN NEW.state IN ('ABANDONED', 'FAILED', 'NEEDS_HUMAN', 'PENDING', 'RUNNING', 'SUCCEEDED')
    ELSE false
  END) THEN
    IF NEW.revision <= OLD.revision THEN
      RAISE EXCEPTION USING
        ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = 'actionjournal_revision',
        MESSAGE = format('%s %s: a move raises the revision (%s -> %s)',
                         TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
    END IF;
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('%s %s: illegal move %s -> %s', TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
END $$;

CREATE FUNCTION runs_run_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text;
BEGIN
  IF ((NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'QUEUED', 'RECONCILING', 'RETRY_WAIT', 'SUSPENDED', 'VERIFYING', 'WAITING_APPROVAL', 'WAITING_CHILD'))
    AND (NEW.priority IN ('high', 'low', 'normal'))
    AND ((NEW.resume_to IS NOT NULL) = (NEW.state IN ('RETRY_WAIT', 'SUSPENDED')))
    AND (NEW.lease_worker IS NULL OR NOT NEW.state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'INCOMPLETE', 'RETRY_WAIT', 'WAITING_APPROVAL', 'WAITING_CHILD'))
    AND (num_nulls(NEW.lease_worker, NEW.claim_token) <> 1 AND (NEW.lease_worker IS NULL OR NEW.call_deadline_at IS NOT NULL))
    AND ((NEW.ended_at IS NOT NULL) = (NEW.state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'INCOMPLETE')))
    AND (NEW.stop_reason IS NOT NULL OR NOT NEW.state IN ('CANCELLED', 'CANCELLING', 'FAILED', 'INCOMPLETE'))
    AND (num_nulls(NEW.parent_id, NEW.root_id, NEW.parent_action) IN (0, 3))
    AND LEAST(NEW.hints, NEW.claims, NEW.turn, NEW.actions_used, NEW.invalid_replies, NEW.max_turns, NEW.max_actions, NEW.max_failures, NEW.max_handoffs, NEW.turns_lent, NEW.actions_lent, NEW.handoffs_lent, NEW.progress_from) >= 0
  ) IS NOT FALSE THEN
    RETURN NEW;
  END IF;
  broken := CASE
    WHEN (num_nulls(NEW.parent_id, NEW.root_id, NEW.parent_action) IN (0, 3)) IS FALSE THEN 'run_child_is_whole'
    WHEN ((NEW.ended_at IS NOT NULL) = (NEW.state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'INCOMPLETE'))) IS FALSE THEN 'run_ended_iff_terminal'
    WHEN (num_nulls(NEW.lease_worker, NEW.claim_token) <> 1 AND (NEW.lease_worker IS NULL OR NEW.call_deadline_at IS NOT NULL)) IS FALSE THEN 'run_lease_is_whole'
    WHEN (NEW.priority IN ('high', 'low', 'normal')) IS FALSE THEN 'run_priority_known'
    WHEN ((NEW.resume_to IS NOT NULL) = (NEW.state IN ('RETRY_WAIT', 'SUSPENDED'))) IS FALSE THEN 'run_resume_to_iff_waiting'
    WHEN (NEW.state IN ('CALLING_MODEL', 'CANCELLED', 'CANCELLING', 'COMPILING_CONTEXT', 'COMPLETED', 'DISPATCHING_TOOLS', 'FAILED', 'INCOMPLETE', 'OBSERVING', 'QUEUED', 'RECONCILING', 'RETRY_WAIT', 'SUSPENDED', 'VERIFYING', 'WAITING_APPROVAL', 'WAITING_CHILD')) IS FALSE THEN 'run_state_known'
    WHEN (NEW.stop_reason IS NOT NULL OR NOT NEW.state IN ('CANCELLED', 'CANCELLING', 'FAILED', 'INCOMPLETE')) IS FALSE THEN 'run_stop_has_reason'
    WHEN (NEW.lease_worker IS NULL OR NOT NEW.state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'INCOMPLETE', 'RETRY_WAIT', 'WAITING_APPROVAL', 'WAITING_CHILD')) IS FALSE THEN 'run_waiting_holds_no_lease'
    WHEN (NEW.actions_lent >= 0) IS FALSE THEN 'runs_run_actions_lent_check'
    WHEN (NEW.actions_used >= 0) IS FALSE THEN 'runs_run_actions_used_check'
    WHEN (NEW.claims >= 0) IS FALSE THEN 'runs_run_claims_check'
    WHEN (NEW.handoffs_lent >= 0) IS FALSE THEN 'runs_run_handoffs_lent_check'
    WHEN (NEW.hints >= 0) IS FALSE THEN 'runs_run_hints_check'
    WHEN (NEW.invalid_replies >= 0) IS FALSE THEN 'runs_run_invalid_replies_check'
    WHEN (NEW.max_actions >= 0) IS FALSE THEN 'runs_run_max_actions_check'
    WHEN (NEW.max_failures >= 0) IS FALSE THEN 'runs_run_max_failures_check'
    WHEN (NEW.max_handoffs >= 0) IS FALSE THEN 'runs_run_max_handoffs_check'
    WHEN (NEW.max_turns >= 0) IS FALSE THEN 'runs_run_max_turns_check'
    WHEN (NEW.progress_from >= 0) IS FALSE THEN 'runs_run_progress_from_check'
    WHEN (NEW.turn >= 0) IS FALSE THEN 'runs_run_turn_check'
    WHEN (NEW.turns_lent >= 0) IS FALSE THEN 'runs_run_turns_lent_check'
  END;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = broken,
    MESSAGE = format('new row for relation "%s" violates check constraint "%s"',
                     TG_TABLE_NAME, broken);
END $$;

CREATE FUNCTION runs_actionjournal_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text;
BEGIN
  IF ((NEW.state IN ('ABANDONED', 'AWAITING_APPROVAL', 'DENIED', 'EXPIRED', 'FAILED', 'NEEDS_HUMAN', 'PENDING', 'PROPOSED', 'READY', 'REJECTED', 'RUNNING', 'SUCCEEDED', 'UNKNOWN', 'VOIDED'))
    AND (NEW.effect IN ('READ', 'WRITE', 'WRITE_IRREVERSIBLE'))
    AND ((NEW.ended_at IS NOT NULL) = (NEW.state IN ('ABANDONED', 'DENIED', 'EXPIRED', 'FAILED', 'REJECTED', 'SUCCEEDED', 'VOIDED')))
    AND (NEW.effect = 'READ' OR NEW.idempotency_key IS NOT NULL OR NOT NEW.state IN ('FAILED', 'PENDING', 'RUNNING', 'SUCCEEDED', 'UNKNOWN'))
    AND (NEW.effect <> 'READ' OR NOT NEW.state IN ('NEEDS_HUMAN', 'PENDING', 'UNKNOWN'))
    AND LEAST(NEW.turn, NEW.ordinal, NEW.edit, NEW.generation, NEW.probes) >= 0
  ) IS NOT FALSE THEN
    RETURN NEW;
  END IF;
  broken := CASE
    WHEN (NEW.effect IN ('READ', 'WRITE', 'WRITE_IRREVERSIBLE')) IS FALSE THEN 'action_effect_known'
    WHEN ((NEW.ended_at IS NOT NULL) = (NEW.state IN ('ABANDONED', 'DENIED', 'EXPIRED', 'FAILED', 'REJECTED', 'SUCCEEDED', 'VOIDED'))) IS FALSE THEN 'action_ended_iff_terminal'
    WHEN (NEW.effect <> 'READ' OR NOT NEW.state IN ('NEEDS_HUMAN', 'PENDING', 'UNKNOWN')) IS FALSE THEN 'action_read_is_never_unknown'
    WHEN (NEW.state IN ('ABANDONED', 'AWAITING_APPROVAL', 'DENIED', 'EXPIRED', 'FAILED', 'NEEDS_HUMAN', 'PENDING', 'PROPOSED', 'READY', 'REJECTED', 'RUNNING', 'SUCCEEDED', 'UNKNOWN', 'VOIDED')) IS FALSE THEN 'action_state_known'
    WHEN (NEW.effect = 'READ' OR NEW.idempotency_key IS NOT NULL OR NOT NEW.state IN ('FAILED', 'PENDING', 'RUNNING', 'SUCCEEDED', 'UNKNOWN')) IS FALSE THEN 'action_write_has_key'
    WHEN (NEW.edit >= 0) IS FALSE THEN 'runs_actionjournal_edit_check'
    WHEN (NEW.generation >= 0) IS FALSE THEN 'runs_actionjournal_generation_check'
    WHEN (NEW.ordinal >= 0) IS FALSE THEN 'runs_actionjournal_ordinal_check'
    WHEN (NEW.probes >= 0) IS FALSE THEN 'runs_actionjournal_probes_check'
    WHEN (NEW.turn >= 0) IS FALSE THEN 'runs_actionjournal_turn_check'
  END;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = broken,
    MESSAGE = format('new row for relation "%s" violates check constraint "%s"',
                     TG_TABLE_NAME, broken);
END $$;

CREATE FUNCTION runs_attempt_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text;
BEGIN
  IF ((NEW.kind IN ('MODEL', 'POSTCONDITION', 'PRECHECK', 'PROBE', 'TOOL'))
    AND ((NEW.outcome IS NULL) = (NEW.ended_at IS NULL))
    AND LEAST(NEW.turn, NEW.n) >= 0
  ) IS NOT FALSE THEN
    RETURN NEW;
  END IF;
  broken := CASE
    WHEN (NEW.kind IN ('MODEL', 'POSTCONDITION', 'PRECHECK', 'PROBE', 'TOOL')) IS FALSE THEN 'attempt_kind_known'
    WHEN ((NEW.outcome IS NULL) = (NEW.ended_at IS NULL)) IS FALSE THEN 'attempt_outcome_has_time'
    WHEN (NEW.n >= 0) IS FALSE THEN 'runs_attempt_n_check'
    WHEN (NEW.turn >= 0) IS FALSE THEN 'runs_attempt_turn_check'
  END;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = broken,
    MESSAGE = format('new row for relation "%s" violates check constraint "%s"',
                     TG_TABLE_NAME, broken);
END $$;

CREATE FUNCTION runs_run_settled() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  live record;
BEGIN
  SELECT id, state INTO live FROM runs_actionjournal
   WHERE run_id = NEW.id AND ended_at IS NULL AND state NOT IN ('ABANDONED', 'DENIED', 'EXPIRED', 'FAILED', 'REJECTED', 'SUCCEEDED', 'VOIDED')
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

CREATE FUNCTION runs_run_allows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  run record;
  problem text;
BEGIN
  SELECT state, stop_reason, fence, dry_run INTO run FROM runs_run WHERE id = NEW.run_id FOR SHARE;
  IF run.state IN ('CANCELLED', 'COMPLETED', 'FAILED', 'INCOMPLETE') THEN
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

CREATE TRIGGER run_first BEFORE INSERT ON runs_run
FOR EACH ROW
WHEN (NEW.state NOT IN ('QUEUED'))
EXECUTE FUNCTION runs_refuse('a row cannot begin in this state');

CREATE TRIGGER run_move AFTER UPDATE OF state ON runs_run
FOR EACH ROW
WHEN (OLD.state IS DISTINCT FROM NEW.state)
EXECUTE FUNCTION runs_run_move('illegal move');

CREATE TRIGGER run_fresh BEFORE INSERT ON runs_run
FOR EACH ROW
WHEN (NEW.fence <> 0 OR NEW.lease_worker IS NOT NULL OR NEW.stop_reason IS NOT NULL)
EXECUTE FUNCTION runs_refuse('a run begins without fence, lease and stop reason');

CREATE TRIGGER run_frozen AFTER UPDATE OF id, tenant, agent_version_id, principal, scopes, on_behalf_of, dedupe_key, session_id, retry_of_id, parent_id, root_id, parent_action, webhook_endpoint_id, input, priority, dry_run, created_at, deadline_at ON runs_run
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.agent_version_id IS DISTINCT FROM NEW.agent_version_id
  OR OLD.principal IS DISTINCT FROM NEW.principal
  OR OLD.scopes IS DISTINCT FROM NEW.scopes
  OR OLD.on_behalf_of IS DISTINCT FROM NEW.on_behalf_of
  OR OLD.dedupe_key IS DISTINCT FROM NEW.dedupe_key
  OR OLD.session_id IS DISTINCT FROM NEW.session_id
  OR OLD.retry_of_id IS DISTINCT FROM NEW.retry_of_id
  OR OLD.parent_id IS DISTINCT FROM NEW.parent_id
  OR OLD.root_id IS DISTINCT FROM NEW.root_id
  OR OLD.parent_action IS DISTINCT FROM NEW.parent_action
  OR OLD.webhook_endpoint_id IS DISTINCT FROM NEW.webhook_endpoint_id
  OR OLD.input IS DISTINCT FROM NEW.input
  OR OLD.priority IS DISTINCT FROM NEW.priority
  OR OLD.dry_run IS DISTINCT FROM NEW.dry_run
  OR OLD.created_at IS DISTINCT FROM NEW.created_at
  OR OLD.deadline_at IS DISTINCT FROM NEW.deadline_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'tenant', 'agent_version_id', 'principal', 'scopes', 'on_behalf_of', 'dedupe_key', 'session_id', 'retry_of_id', 'parent_id', 'root_id', 'parent_action', 'webhook_endpoint_id', 'input', 'priority', 'dry_run', 'created_at', 'deadline_at');

CREATE TRIGGER run_once AFTER UPDATE OF stop_reason, failure ON runs_run
FOR EACH ROW
WHEN ((OLD.stop_reason IS NOT NULL AND OLD.stop_reason IS DISTINCT FROM NEW.stop_reason)
  OR (OLD.failure IS NOT NULL AND OLD.failure IS DISTINCT FROM NEW.failure))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'stop_reason', 'failure');

CREATE TRIGGER run_grows AFTER UPDATE OF revision, fence, event_seq ON runs_run
FOR EACH ROW
WHEN (NEW.revision < OLD.revision
  OR NEW.fence < OLD.fence
  OR NEW.event_seq < OLD.event_seq)
EXECUTE FUNCTION runs_refuse('a counter never goes back', 'revision', 'fence', 'event_seq');

CREATE TRIGGER run_whole AFTER INSERT OR UPDATE ON runs_run
FOR EACH ROW
EXECUTE FUNCTION runs_run_whole('a row fits its own state');

CREATE TRIGGER run_ended AFTER UPDATE OF state, output, stop_reason, reason, fence, ended_at ON runs_run
FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL)
EXECUTE FUNCTION runs_refuse_changed('a terminal run keeps its end', 'state', 'output', 'stop_reason', 'reason', 'fence', 'ended_at');

CREATE CONSTRAINT TRIGGER run_settled AFTER UPDATE OF ended_at ON runs_run
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL)
EXECUTE FUNCTION runs_run_settled('a run cannot end with an action that has not');

CREATE CONSTRAINT TRIGGER run_descends AFTER INSERT ON runs_run
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (NEW.parent_id IS NOT NULL)
EXECUTE FUNCTION runs_run_descends('a child run begins with its parent''s action, under a parent that is not stopping');

CREATE TRIGGER run_slice_kept AFTER UPDATE OF max_turns, max_actions, max_tokens, max_cost, max_handoffs ON runs_run
FOR EACH ROW
WHEN (OLD.parent_id IS NOT NULL AND (
  OLD.max_turns IS DISTINCT FROM NEW.max_turns
  OR OLD.max_actions IS DISTINCT FROM NEW.max_actions
  OR OLD.max_tokens IS DISTINCT FROM NEW.max_tokens
  OR OLD.max_cost IS DISTINCT FROM NEW.max_cost
  OR OLD.max_handoffs IS DISTINCT FROM NEW.max_handoffs))
EXECUTE FUNCTION runs_refuse('a child run keeps its slice of the budget', 'max_turns', 'max_actions', 'max_tokens', 'max_cost', 'max_handoffs');

CREATE TRIGGER actionjournal_first BEFORE INSERT ON runs_actionjournal
FOR EACH ROW
WHEN (NEW.state NOT IN ('AWAITING_APPROVAL', 'DENIED', 'PROPOSED', 'READY', 'RUNNING', 'VOIDED'))
EXECUTE FUNCTION runs_refuse('a row cannot begin in this state');

CREATE TRIGGER actionjournal_move AFTER UPDATE OF state ON runs_actionjournal
FOR EACH ROW
WHEN (OLD.state IS DISTINCT FROM NEW.state)
EXECUTE FUNCTION runs_actionjournal_move('illegal move');

CREATE TRIGGER actionjournal_frozen AFTER UPDATE OF id, run_id, tenant, turn, ordinal, edit, edited_by, call_id, tool, tool_version, effect, contract, arguments, params_hash, fingerprint, intent_key, created_at ON runs_actionjournal
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.run_id IS DISTINCT FROM NEW.run_id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.turn IS DISTINCT FROM NEW.turn
  OR OLD.ordinal IS DISTINCT FROM NEW.ordinal
  OR OLD.edit IS DISTINCT FROM NEW.edit
  OR OLD.edited_by IS DISTINCT FROM NEW.edited_by
  OR OLD.call_id IS DISTINCT FROM NEW.call_id
  OR OLD.tool IS DISTINCT FROM NEW.tool
  OR OLD.tool_version IS DISTINCT FROM NEW.tool_version
  OR OLD.effect IS DISTINCT FROM NEW.effect
  OR OLD.contract IS DISTINCT FROM NEW.contract
  OR OLD.arguments IS DISTINCT FROM NEW.arguments
  OR OLD.params_hash IS DISTINCT FROM NEW.params_hash
  OR OLD.fingerprint IS DISTINCT FROM NEW.fingerprint
  OR OLD.intent_key IS DISTINCT FROM NEW.intent_key
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'run_id', 'tenant', 'turn', 'ordinal', 'edit', 'edited_by', 'call_id', 'tool', 'tool_version', 'effect', 'contract', 'arguments', 'params_hash', 'fingerprint', 'intent_key', 'created_at');

CREATE TRIGGER actionjournal_once AFTER UPDATE OF idempotency_key, generation, first_sent_at, observation ON runs_actionjournal
FOR EACH ROW
WHEN ((OLD.idempotency_key IS NOT NULL AND OLD.idempotency_key IS DISTINCT FROM NEW.idempotency_key)
  OR (OLD.generation IS NOT NULL AND OLD.generation IS DISTINCT FROM NEW.generation)
  OR (OLD.first_sent_at IS NOT NULL AND OLD.first_sent_at IS DISTINCT FROM NEW.first_sent_at)
  OR (OLD.observation IS NOT NULL AND OLD.observation IS DISTINCT FROM NEW.observation))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'idempotency_key', 'generation', 'first_sent_at', 'observation');

CREATE TRIGGER actionjournal_grows AFTER UPDATE OF revision, fence ON runs_actionjournal
FOR EACH ROW
WHEN (NEW.revision < OLD.revision
  OR NEW.fence < OLD.fence)
EXECUTE FUNCTION runs_refuse('a counter never goes back', 'revision', 'fence');

CREATE TRIGGER actionjournal_whole AFTER INSERT OR UPDATE ON runs_actionjournal
FOR EACH ROW
EXECUTE FUNCTION runs_actionjournal_whole('a row fits its own state');

CREATE TRIGGER actionjournal_ended AFTER UPDATE OF idempotency_key, generation, first_sent_at, fence, resource_key, policy_verdict, policy_rule, policy_version, precheck, bound_version, approval_id, state, reason, detail, same_as_id, result, error_class, downstream_ref, next_probe_at, probes, ended_at ON runs_actionjournal
FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL)
EXECUTE FUNCTION runs_refuse_changed('a terminal action takes nothing but its observation', 'idempotency_key', 'generation', 'first_sent_at', 'fence', 'resource_key', 'policy_verdict', 'policy_rule', 'policy_version', 'precheck', 'bound_version', 'approval_id', 'state', 'reason', 'detail', 'same_as_id', 'result', 'error_class', 'downstream_ref', 'next_probe_at', 'probes', 'ended_at');

CREATE CONSTRAINT TRIGGER actionjournal_joins AFTER INSERT ON runs_actionjournal
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (NEW.ended_at IS NULL AND NEW.state <> 'RUNNING')
EXECUTE FUNCTION runs_run_allows('a terminal run takes no new action', 'lives');

CREATE CONSTRAINT TRIGGER actionjournal_begins AFTER INSERT ON runs_actionjournal
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (NEW.state = 'RUNNING')
EXECUTE FUNCTION runs_run_allows('an action starts only under the current fence of a run that is not stopping', 'starts');

CREATE CONSTRAINT TRIGGER actionjournal_starts AFTER UPDATE OF state ON runs_actionjournal
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (OLD.state IS DISTINCT FROM NEW.state AND NEW.state = 'RUNNING')
EXECUTE FUNCTION runs_run_allows('an action starts only under the current fence of a run that is not stopping', 'starts');

CREATE TRIGGER attempt_frozen AFTER UPDATE OF id, run_id, turn, action_id, kind, n, fence, worker, idempotency_key, fingerprint, input_revision, send_by, started_at ON runs_attempt
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.run_id IS DISTINCT FROM NEW.run_id
  OR OLD.turn IS DISTINCT FROM NEW.turn
  OR OLD.action_id IS DISTINCT FROM NEW.action_id
  OR OLD.kind IS DISTINCT FROM NEW.kind
  OR OLD.n IS DISTINCT FROM NEW.n
  OR OLD.fence IS DISTINCT FROM NEW.fence
  OR OLD.worker IS DISTINCT FROM NEW.worker
  OR OLD.idempotency_key IS DISTINCT FROM NEW.idempotency_key
  OR OLD.fingerprint IS DISTINCT FROM NEW.fingerprint
  OR OLD.input_revision IS DISTINCT FROM NEW.input_revision
  OR OLD.send_by IS DISTINCT FROM NEW.send_by
  OR OLD.started_at IS DISTINCT FROM NEW.started_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'run_id', 'turn', 'action_id', 'kind', 'n', 'fence', 'worker', 'idempotency_key', 'fingerprint', 'input_revision', 'send_by', 'started_at');

CREATE TRIGGER attempt_once AFTER UPDATE OF lost_at ON runs_attempt
FOR EACH ROW
WHEN ((OLD.lost_at IS NOT NULL AND OLD.lost_at IS DISTINCT FROM NEW.lost_at))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'lost_at');

CREATE TRIGGER attempt_whole AFTER INSERT OR UPDATE ON runs_attempt
FOR EACH ROW
EXECUTE FUNCTION runs_attempt_whole('a row fits its own state');

CREATE TRIGGER attempt_outcome_once AFTER UPDATE OF outcome, late, result, error_class, detail, reference, usage, ended_at, lost_at ON runs_attempt
FOR EACH ROW
WHEN (OLD.outcome IS NOT NULL)
EXECUTE FUNCTION runs_refuse_changed('the outcome of an attempt is written once', 'outcome', 'late', 'result', 'error_class', 'detail', 'reference', 'usage', 'ended_at', 'lost_at');

CREATE TRIGGER attempt_outcome_whole AFTER UPDATE OF outcome, late, result, error_class, detail, reference, usage, ended_at ON runs_attempt
FOR EACH ROW
WHEN (NEW.outcome IS NULL)
EXECUTE FUNCTION runs_refuse_changed('the outcome of an attempt is written whole', 'outcome', 'late', 'result', 'error_class', 'detail', 'reference', 'usage', 'ended_at');

CREATE CONSTRAINT TRIGGER attempt_starts AFTER INSERT ON runs_attempt
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (NEW.kind IN ('MODEL', 'TOOL'))
EXECUTE FUNCTION runs_run_allows('a call starts only under the current fence of a run that is not stopping', 'starts');

CREATE CONSTRAINT TRIGGER attempt_asks AFTER INSERT ON runs_attempt
DEFERRABLE INITIALLY IMMEDIATE
FOR EACH ROW
WHEN (NEW.kind NOT IN ('MODEL', 'TOOL'))
EXECUTE FUNCTION runs_run_allows('a call is made only under the current fence of a live run', 'fenced');

CREATE TRIGGER turn_frozen AFTER UPDATE OF id, run_id, number, model, manifest, request_sha256, code_version, created_at ON runs_turn
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.run_id IS DISTINCT FROM NEW.run_id
  OR OLD.number IS DISTINCT FROM NEW.number
  OR OLD.model IS DISTINCT FROM NEW.model
  OR OLD.manifest IS DISTINCT FROM NEW.manifest
  OR OLD.request_sha256 IS DISTINCT FROM NEW.request_sha256
  OR OLD.code_version IS DISTINCT FROM NEW.code_version
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'run_id', 'number', 'model', 'manifest', 'request_sha256', 'code_version', 'created_at');

CREATE TRIGGER turn_once AFTER UPDATE OF usage, decided_at, response_id, output, decision ON runs_turn
FOR EACH ROW
WHEN ((OLD.usage IS NOT NULL AND OLD.usage IS DISTINCT FROM NEW.usage)
  OR (OLD.decided_at IS NOT NULL AND OLD.decided_at IS DISTINCT FROM NEW.decided_at)
  OR (OLD.response_id <> '' AND OLD.response_id IS DISTINCT FROM NEW.response_id)
  OR (OLD.output <> '' AND OLD.output IS DISTINCT FROM NEW.output)
  OR (OLD.decision <> '' AND OLD.decision IS DISTINCT FROM NEW.decision))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'usage', 'decided_at', 'response_id', 'output', 'decision');

CREATE TRIGGER turn_decided AFTER UPDATE OF response_id, output, decision, text, usage, decided_at ON runs_turn
FOR EACH ROW
WHEN (OLD.decided_at IS NOT NULL)
EXECUTE FUNCTION runs_refuse_changed('a decision is written once', 'response_id', 'output', 'decision', 'text', 'usage', 'decided_at');

CREATE TRIGGER keyowner_frozen BEFORE UPDATE OF id, tenant, tool, intent_key, generation, action_id, fingerprint, created_at ON runs_keyowner
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.tool IS DISTINCT FROM NEW.tool
  OR OLD.intent_key IS DISTINCT FROM NEW.intent_key
  OR OLD.generation IS DISTINCT FROM NEW.generation
  OR OLD.action_id IS DISTINCT FROM NEW.action_id
  OR OLD.fingerprint IS DISTINCT FROM NEW.fingerprint
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'tenant', 'tool', 'intent_key', 'generation', 'action_id', 'fingerprint', 'created_at');

CREATE TRIGGER keyowner_once BEFORE UPDATE OF released_at ON runs_keyowner
FOR EACH ROW
WHEN ((OLD.released_at IS NOT NULL AND OLD.released_at IS DISTINCT FROM NEW.released_at))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'released_at');

CREATE TRIGGER callback_frozen BEFORE UPDATE OF id, source, event_id, body_sha256, word, idempotency_key, reference, result, detail, sent_at, created_at ON runs_callback
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.source IS DISTINCT FROM NEW.source
  OR OLD.event_id IS DISTINCT FROM NEW.event_id
  OR OLD.body_sha256 IS DISTINCT FROM NEW.body_sha256
  OR OLD.word IS DISTINCT FROM NEW.word
  OR OLD.idempotency_key IS DISTINCT FROM NEW.idempotency_key
  OR OLD.reference IS DISTINCT FROM NEW.reference
  OR OLD.result IS DISTINCT FROM NEW.result
  OR OLD.detail IS DISTINCT FROM NEW.detail
  OR OLD.sent_at IS DISTINCT FROM NEW.sent_at
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'source', 'event_id', 'body_sha256', 'word', 'idempotency_key', 'reference', 'result', 'detail', 'sent_at', 'created_at');

CREATE TRIGGER callback_once BEFORE UPDATE OF action_id, settled_at, did ON runs_callback
FOR EACH ROW
WHEN ((OLD.action_id IS NOT NULL AND OLD.action_id IS DISTINCT FROM NEW.action_id)
  OR (OLD.settled_at IS NOT NULL AND OLD.settled_at IS DISTINCT FROM NEW.settled_at)
  OR (OLD.did <> '' AND OLD.did IS DISTINCT FROM NEW.did))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'action_id', 'settled_at', 'did');

CREATE TRIGGER policythreshold_frozen BEFORE UPDATE OF id, tenant, tool, argument, op, value, verdict, role, quorum, ttl_seconds, reason, created_by, created_at ON runs_policythreshold
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.tool IS DISTINCT FROM NEW.tool
  OR OLD.argument IS DISTINCT FROM NEW.argument
  OR OLD.op IS DISTINCT FROM NEW.op
  OR OLD.value IS DISTINCT FROM NEW.value
  OR OLD.verdict IS DISTINCT FROM NEW.verdict
  OR OLD.role IS DISTINCT FROM NEW.role
  OR OLD.quorum IS DISTINCT FROM NEW.quorum
  OR OLD.ttl_seconds IS DISTINCT FROM NEW.ttl_seconds
  OR OLD.reason IS DISTINCT FROM NEW.reason
  OR OLD.created_by IS DISTINCT FROM NEW.created_by
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION runs_refuse('a frozen column never changes', 'id', 'tenant', 'tool', 'argument', 'op', 'value', 'verdict', 'role', 'quorum', 'ttl_seconds', 'reason', 'created_by', 'created_at');

CREATE TRIGGER policythreshold_once BEFORE UPDATE OF retired_at, retired_by, retire_reason ON runs_policythreshold
FOR EACH ROW
WHEN ((OLD.retired_at IS NOT NULL AND OLD.retired_at IS DISTINCT FROM NEW.retired_at)
  OR (OLD.retired_by <> '' AND OLD.retired_by IS DISTINCT FROM NEW.retired_by)
  OR (OLD.retire_reason <> '' AND OLD.retire_reason IS DISTINCT FROM NEW.retire_reason))
EXECUTE FUNCTION runs_refuse('a column that is written once never changes again', 'retired_at', 'retired_by', 'retire_reason');

CREATE TRIGGER run_kept BEFORE DELETE ON runs_run
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER actionjournal_kept BEFORE DELETE ON runs_actionjournal
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER attempt_kept BEFORE DELETE ON runs_attempt
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER turn_kept BEFORE DELETE ON runs_turn
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER keyowner_kept BEFORE DELETE ON runs_keyowner
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER incident_kept BEFORE DELETE ON runs_incident
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER callback_kept BEFORE DELETE ON runs_callback
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER policythreshold_kept BEFORE DELETE ON runs_policythreshold
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('a row is never deleted');

CREATE TRIGGER event_append_only BEFORE UPDATE OR DELETE ON runs_event
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER event_not_emptied BEFORE TRUNCATE ON runs_event
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER agentversion_append_only BEFORE UPDATE OR DELETE ON runs_agentversion
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER agentversion_not_emptied BEFORE TRUNCATE ON runs_agentversion
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER reconciliation_append_only BEFORE UPDATE OR DELETE ON runs_reconciliation
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER reconciliation_not_emptied BEFORE TRUNCATE ON runs_reconciliation
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER evidence_append_only BEFORE UPDATE OR DELETE ON runs_evidence
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER evidence_not_emptied BEFORE TRUNCATE ON runs_evidence
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE ON runs_ledger
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER ledger_not_emptied BEFORE TRUNCATE ON runs_ledger
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER switchchange_append_only BEFORE UPDATE OR DELETE ON runs_switchchange
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER switchchange_not_emptied BEFORE TRUNCATE ON runs_switchchange
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER auditanchor_append_only BEFORE UPDATE OR DELETE ON runs_auditanchor
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER auditanchor_not_emptied BEFORE TRUNCATE ON runs_auditanchor
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER auditentry_append_only BEFORE UPDATE OR DELETE ON runs_auditentry
FOR EACH ROW
EXECUTE FUNCTION runs_refuse('the table is append-only');

CREATE TRIGGER auditentry_not_emptied BEFORE TRUNCATE ON runs_auditentry
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION runs_refuse('the table is append-only');

ALTER TABLE runs_run SET (fillfactor = 80);
ALTER TABLE runs_actionjournal SET (fillfactor = 80);
ALTER TABLE runs_attempt SET (fillfactor = 80);
