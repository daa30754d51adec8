-- Rules of approvals. Written by `python -m runs.db_rules`; not edited by hand.

CREATE FUNCTION approvals_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION approvals_approval_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (CASE OLD.state
    WHEN 'APPROVED' THEN NEW.state IN ('CONSUMED', 'EXPIRED', 'VOIDED')
    WHEN 'PENDING' THEN NEW.state IN ('APPROVED', 'EXPIRED', 'REJECTED', 'VOIDED')
    ELSE false
  END) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME,
    MESSAGE = format('%s %s: illegal move %s -> %s', TG_TABLE_NAME, OLD.id, OLD.state, NEW.state);
END $$;

CREATE TRIGGER approval_first BEFORE INSERT ON approvals_approval
FOR EACH ROW
WHEN (NEW.state NOT IN ('PENDING'))
EXECUTE FUNCTION approvals_refuse('a row cannot begin in this state');

CREATE TRIGGER approval_move BEFORE UPDATE OF state ON approvals_approval
FOR EACH ROW
WHEN (OLD.state IS DISTINCT FROM NEW.state)
EXECUTE FUNCTION approvals_approval_move('illegal move');

CREATE TRIGGER approval_frozen BEFORE UPDATE OF id, tenant, run_id, action_id, tool, tool_version, policy_version, rule, arguments, params_hash, resource_key, resource_version, impact, requester, role, required_count, policy_reason, high_risk, tool_digest, editor, renewal, supersedes, standing, expires_at, created_at ON approvals_approval
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.run_id IS DISTINCT FROM NEW.run_id
  OR OLD.action_id IS DISTINCT FROM NEW.action_id
  OR OLD.tool IS DISTINCT FROM NEW.tool
  OR OLD.tool_version IS DISTINCT FROM NEW.tool_version
  OR OLD.policy_version IS DISTINCT FROM NEW.policy_version
  OR OLD.rule IS DISTINCT FROM NEW.rule
  OR OLD.arguments IS DISTINCT FROM NEW.arguments
  OR OLD.params_hash IS DISTINCT FROM NEW.params_hash
  OR OLD.resource_key IS DISTINCT FROM NEW.resource_key
  OR OLD.resource_version IS DISTINCT FROM NEW.resource_version
  OR OLD.impact IS DISTINCT FROM NEW.impact
  OR OLD.requester IS DISTINCT FROM NEW.requester
  OR OLD.role IS DISTINCT FROM NEW.role
  OR OLD.required_count IS DISTINCT FROM NEW.required_count
  OR OLD.policy_reason IS DISTINCT FROM NEW.policy_reason
  OR OLD.high_risk IS DISTINCT FROM NEW.high_risk
  OR OLD.tool_digest IS DISTINCT FROM NEW.tool_digest
  OR OLD.editor IS DISTINCT FROM NEW.editor
  OR OLD.renewal IS DISTINCT FROM NEW.renewal
  OR OLD.supersedes IS DISTINCT FROM NEW.supersedes
  OR OLD.standing IS DISTINCT FROM NEW.standing
  OR OLD.expires_at IS DISTINCT FROM NEW.expires_at
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION approvals_refuse('a frozen column never changes', 'id', 'tenant', 'run_id', 'action_id', 'tool', 'tool_version', 'policy_version', 'rule', 'arguments', 'params_hash', 'resource_key', 'resource_version', 'impact', 'requester', 'role', 'required_count', 'policy_reason', 'high_risk', 'tool_digest', 'editor', 'renewal', 'supersedes', 'standing', 'expires_at', 'created_at');

CREATE TRIGGER approval_once BEFORE UPDATE OF decided_at, consumed_at, validation ON approvals_approval
FOR EACH ROW
WHEN ((OLD.decided_at IS NOT NULL AND OLD.decided_at IS DISTINCT FROM NEW.decided_at)
  OR (OLD.consumed_at IS NOT NULL AND OLD.consumed_at IS DISTINCT FROM NEW.consumed_at)
  OR (OLD.validation IS NOT NULL AND OLD.validation IS DISTINCT FROM NEW.validation))
EXECUTE FUNCTION approvals_refuse('a column that is written once never changes again', 'decided_at', 'consumed_at', 'validation');

CREATE TRIGGER standingapproval_frozen BEFORE UPDATE OF id, tenant, tool, tool_version, agent, principal, conditions, max_uses, expires_at, granted_by, reason, created_at ON approvals_standingapproval
FOR EACH ROW
WHEN (OLD.id IS DISTINCT FROM NEW.id
  OR OLD.tenant IS DISTINCT FROM NEW.tenant
  OR OLD.tool IS DISTINCT FROM NEW.tool
  OR OLD.tool_version IS DISTINCT FROM NEW.tool_version
  OR OLD.agent IS DISTINCT FROM NEW.agent
  OR OLD.principal IS DISTINCT FROM NEW.principal
  OR OLD.conditions IS DISTINCT FROM NEW.conditions
  OR OLD.max_uses IS DISTINCT FROM NEW.max_uses
  OR OLD.expires_at IS DISTINCT FROM NEW.expires_at
  OR OLD.granted_by IS DISTINCT FROM NEW.granted_by
  OR OLD.reason IS DISTINCT FROM NEW.reason
  OR OLD.created_at IS DISTINCT FROM NEW.created_at)
EXECUTE FUNCTION approvals_refuse('a frozen column never changes', 'id', 'tenant', 'tool', 'tool_version', 'agent', 'principal', 'conditions', 'max_uses', 'expires_at', 'granted_by', 'reason', 'created_at');

CREATE TRIGGER standingapproval_once BEFORE UPDATE OF revoked_at, revoked_by, revoke_reason ON approvals_standingapproval
FOR EACH ROW
WHEN ((OLD.revoked_at IS NOT NULL AND OLD.revoked_at IS DISTINCT FROM NEW.revoked_at)
  OR (OLD.revoked_by <> '' AND OLD.revoked_by IS DISTINCT FROM NEW.revoked_by)
  OR (OLD.revoke_reason <> '' AND OLD.revoke_reason IS DISTINCT FROM NEW.revoke_reason))
EXECUTE FUNCTION approvals_refuse('a column that is written once never changes again', 'revoked_at', 'revoked_by', 'revoke_reason');

CREATE TRIGGER standingapproval_grows BEFORE UPDATE OF uses ON approvals_standingapproval
FOR EACH ROW
WHEN (NEW.uses < OLD.uses)
EXECUTE FUNCTION approvals_refuse('a counter never goes back', 'uses');

CREATE TRIGGER approval_kept BEFORE DELETE ON approvals_approval
FOR EACH ROW
EXECUTE FUNCTION approvals_refuse('a row is never deleted');

CREATE TRIGGER standingapproval_kept BEFORE DELETE ON approvals_standingapproval
FOR EACH ROW
EXECUTE FUNCTION approvals_refuse('a row is never deleted');

CREATE TRIGGER approvalvote_append_only BEFORE UPDATE OR DELETE ON approvals_approvalvote
FOR EACH ROW
EXECUTE FUNCTION approvals_refuse('the table is append-only');

CREATE TRIGGER approvalvote_not_emptied BEFORE TRUNCATE ON approvals_approvalvote
FOR EACH STATEMENT
WHEN (current_setting('agentcore.allow_truncate', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION approvals_refuse('the table is append-only');
