"""The safe actions of the stuck board. Each one checks, under the run's lock, that its cause still
holds, and does nothing that the driver would not do by itself.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from agentcore.canonical import clean_text
from agentcore.lifecycle import RunState, step_of
from runs import dispatch, isolation, leases
from runs.models import Run
from runs.refusals import Refused
from runs.transitions import locked_run

MAX_REASON = 500


def requeue(*, run_id: UUID) -> bool:
    """Send the run's message again, with its revision as it is now; whether the broker took it.

    Writes nothing: a message too many is dropped by the revision. Raises `Run.DoesNotExist`, and
    `Refused` (run_terminal).
    """
    run = Run.objects.get(pk=run_id)
    if run.ended_at is not None:
        raise Refused(code="run_terminal", detail="The run has ended in the meantime.")
    step = step_of(RunState(run.state), RunState(run.resume_to) if run.resume_to else None)
    return dispatch.hint(
        run_id=run.pk,
        revision=run.revision,
        step=step,
        priority=dispatch.priority_of(run.state, run.priority),
        alone=isolation.is_isolated(run.claims),
    )


def release_lease(*, run_id: UUID, actor: str, reason: str) -> Run:
    """Take away a lease whose worker is gone: a new fence, held by nobody, due at once.

    Whoever held it can record what it found out, and advance nothing. The count of deaths stays.
    Opens its own transaction. Raises `Run.DoesNotExist`, and `Refused` (run_not_waiting) when the
    lease lives or there is none.
    """
    said = clean_text(reason.strip(), MAX_REASON)
    with locked_run(run_id, actor=actor, event="run.released") as draft:
        run = draft.run
        if run.ended_at is not None or run.lease_worker is None or leases.is_live(run_id=run_id):
            raise Refused(
                code="run_not_waiting",
                detail="There is no lost lease any more: it is held, or was given back.",
            )
        lost, claims = run.lease_worker, run.claims
        token = uuid4()
        draft.take_lease(worker=token, token=token)
        draft.release()
        draft.set_run(claims=claims, wake_at=draft.now)
        draft.note(command="release_lease", by=actor, reason=said, worker=str(lost))
    dispatch.hint_on_commit(draft.run)
    return draft.run
