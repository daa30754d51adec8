"""The pages of one run: its tabs, and what a person may do to it. GET changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from approvals.errors import DecisionError
from runs import services
from runs.console import run_presenters as presenters
from runs.console import text
from runs.console.pages import VIEW_RUN, caller_of, may, need, page, person_of
from runs.console.redaction import Redactor, redactor_of
from runs.console.run_forms import ByHandForm, ResumeForm
from runs.models import Run
from runs.refusals import Refused
from runs.takeover import record_by_hand, record_reveal

REVEAL = "runs.reveal_redacted"
BUDGET = "runs.manage_budget"


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do to a run: its permission, and which states offer it."""

    permission: str
    label: str
    act: Callable[[HttpRequest, Run], str]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why nothing was done."""

    code: str
    message: str
    status: int = 409
    fields: dict[str, Any] = field(default_factory=dict)


class Unusable(Exception):  # noqa: N818  (an answer, not a fault)
    """The form cannot be used as it was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def run_page(
    request: HttpRequest,
    run: Run,
    *,
    problem: Problem | None = None,
    reveal: bool = False,
) -> HttpResponse:
    """One run, one tab. `reveal` shows what tools keep secret; its caller has recorded that."""
    asked = request.POST.get("tab") or request.GET.get("tab", "")
    tab = asked if asked in dict(presenters.TABS) else "overview"
    actions = presenters.actions_of(run.pk)
    redactor = redactor_of(actions, reveal=reveal)
    head = presenters.head_of(run=run)
    for name in ("input", "output", "metadata", "failure", "reason"):
        redactor.hide(run, name)
    context = {
        "title": f"Run: {text.short(text.goal(run.input), 60)}",
        "head": head,
        "run": run,
        "now": head.now,
        "tab": tab,
        "tabs": presenters.TABS,
        "problem": problem,
        "revealed": reveal,
        "can_reveal": not reveal and redactor.hides and may(request, REVEAL),
        "verbs": offered(request, run),
        "may_budget": may(request, BUDGET),
        "undecided": [a for a in actions if a.state in ("PROPOSED", "AWAITING_APPROVAL", "READY")],
        **_tab(tab, run, actions, redactor),
    }
    return page(
        request, "console/run_detail.html", context, status=problem.status if problem else 200
    )


def _tab(tab: str, run: Run, actions: list[Any], redactor: Redactor) -> dict[str, Any]:
    match tab:
        case "timeline":
            return presenters.timeline_tab(run, redactor)
        case "turns":
            return presenters.turns_tab(run, redactor)
        case "actions":
            return presenters.actions_tab(actions, redactor)
        case "approvals":
            return presenters.approvals_tab(run)
        case "cost":
            return presenters.cost_tab(run)
        case "raw":
            return presenters.raw_tab(run, redactor)
    return {}


# --- what a person may do -----------------------------------------------------------------------


def _reason(request: HttpRequest) -> str:
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise Unusable("Say why: the reason is kept with the run.")
    return reason


def _cancel(request: HttpRequest, run: Run) -> str:
    done = services.cancel_run(run_id=run.pk, actor=person_of(request), reason=_reason(request))
    if done.already:
        return "It had ended or was stopping already; nothing was changed."
    if done.in_flight:
        sent = ", ".join(text.short(action.tool, 40) for action in done.in_flight)
        return f"Nothing new starts. What was sent cannot be called back and is settled: {sent}."
    return "Cancelled. Nothing of it was in flight."


def _pause(request: HttpRequest, run: Run) -> str:
    paused = services.pause_run(run_id=run.pk, actor=person_of(request), reason=_reason(request))
    if paused.state == "SUSPENDED":
        return "Paused. Nothing new starts; what was sent is settled all the same."
    return "Asked to pause: its worker stops at the next step."


def _resume(request: HttpRequest, run: Run) -> str:
    form = ResumeForm(request.POST)
    if not form.is_valid():
        raise Unusable("The limits must be whole numbers (the cost an amount in USD).")
    limits = form.limits
    if limits != services.NewLimits():
        need(request, BUDGET)
    services.resume_run(
        run_id=run.pk, actor=person_of(request), reason=_reason(request), limits=limits
    )
    return "Resumed: it goes on from where it was."


def _retry(request: HttpRequest, run: Run) -> str:
    made = services.retry_run(caller=caller_of(request, run), run=run)
    return f"Started again as run …{str(made.pk)[-8:]}. What the first one did is not done again."


def _by_hand(request: HttpRequest, run: Run) -> str:
    form = ByHandForm(request.POST)
    if not form.is_valid():
        raise Unusable("Say what you did, with the reference that the other system gave you.")
    record_by_hand(run_id=run.pk, actor=person_of(request), **form.cleaned_data)
    return "Recorded in the journal. The action will not be executed, and the model is told."


VERBS: dict[str, Verb] = {
    "cancel": Verb("runs.cancel_run", "Cancel the run", _cancel),
    "pause": Verb("runs.pause_run", "Pause the run", _pause),
    "resume": Verb("runs.pause_run", "Resume the run", _resume),
    "retry": Verb("runs.retry_run", "Retry as a new run", _retry),
    "by-hand": Verb("runs.pause_run", "Record what was done by hand", _by_hand),
}


def offered(request: HttpRequest, run: Run) -> set[str]:
    """The verbs that this person may use on the run as it is."""
    over, stopping = run.ended_at is not None, bool(run.stop_reason)
    paused = run.state == "SUSPENDED"
    fits = {
        "cancel": not over and not stopping,
        "pause": not over and not stopping and not paused and not run.pause_asked_by,
        "resume": not over and not stopping and (paused or bool(run.pause_asked_by)),
        "retry": run.state in ("FAILED", "INCOMPLETE"),
        "by-hand": paused and not stopping,
    }
    return {name for name, fit in fits.items() if fit and may(request, VERBS[name].permission)}


@require_POST
def act(request: HttpRequest, run_id: UUID, verb: str) -> HttpResponse:
    """`/admin/runs/run/<id>/do/<verb>/`: through the same use case as REST."""
    if verb not in VERBS:
        raise Http404("There is no such verb.")
    need(request, VIEW_RUN)  # the answer to a form that was refused is the page of the run
    need(request, VERBS[verb].permission)
    run = _run(run_id)
    try:
        said = VERBS[verb].act(request, run)
    except Unusable as error:
        return run_page(request, run, problem=Problem("form_incomplete", error.message, 400))
    except Refused as error:
        return run_page(request, _run(run_id), problem=Problem(error.code, error.detail))
    except DecisionError as error:
        return run_page(request, _run(run_id), problem=Problem(error.code, error.message))
    messages.success(request, said)
    return redirect("admin:runs_run_change", run_id)


@require_POST
@never_cache
def reveal(request: HttpRequest, run_id: UUID) -> HttpResponse:
    """`/admin/runs/run/<id>/reveal/`: what tools keep secret, once, after an event about it."""
    need(request, VIEW_RUN)
    need(request, REVEAL)
    run = _run(run_id)
    tab = request.POST.get("tab", "")
    record_reveal(run_id=run.pk, actor=person_of(request), what=text.short(tab, 20))
    return run_page(request, _run(run_id), reveal=True)


def _run(run_id: UUID) -> Run:
    found = Run.objects.select_related("agent_version").filter(pk=run_id).first()
    if found is None:
        raise Http404("There is no run with this id.")
    return found
