"""What a person may post about an unknown write."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django import forms

from agentcore.reconciling import Ground, Verdict
from runs.reconciliations import MAX_EVIDENCE

GROUNDS = {
    Ground.KEY_CLOSED: "The downstream used up or cancelled our key: it cannot be sent any more",
    Ground.DOWNSTREAM_REFUSED: "The downstream confirms that it refused and will not try again",
    Ground.ABSENT_AFTER_SETTLING: "Looked up after the settle window, and it is not there",
}
PROBE_IN = {
    300: "in 5 minutes",
    3600: "in 1 hour",
    14400: "in 4 hours",
    86400: "in 1 day",
    604800: "in 1 week",
}
"""Seconds before the next probe, and how that is called."""


class VerdictForm(forms.Form):
    """One verdict on the action at the revision that the page showed."""

    action_revision = forms.IntegerField(min_value=0)
    seen = forms.IntegerField(min_value=0)
    verdict = forms.ChoiceField(choices=[(v, v) for v in Verdict])
    evidence = forms.CharField(max_length=MAX_EVIDENCE)
    evidence_link = forms.CharField(required=False, max_length=500)
    downstream_ref = forms.CharField(required=False, max_length=200)
    result = forms.CharField(required=False, max_length=100_000)
    ground = forms.ChoiceField(required=False, choices=[("", ""), *GROUNDS.items()])
    next_probe = forms.TypedChoiceField(
        required=False, coerce=int, empty_value=None, choices=[("", ""), *PROBE_IN.items()]
    )

    def clean_result(self) -> Any:
        """The result as JSON; nothing when left empty."""
        written = self.cleaned_data["result"].strip()
        if not written:
            return None
        try:
            return json.loads(written, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"The result is not JSON: {error}") from None

    @property
    def facts(self) -> dict[str, Any]:
        """The arguments of `record_verdict` that depend on the verdict; the others stay out."""
        data = self.cleaned_data
        match Verdict(data["verdict"]):
            case Verdict.EFFECT_EXISTS:
                return {"downstream_ref": data["downstream_ref"], "result": data["result"]}
            case Verdict.EFFECT_DOES_NOT_EXIST:
                return {"ground": Ground(data["ground"]) if data["ground"] else None}
            case Verdict.STILL_UNKNOWN:
                seconds = data["next_probe"]
                return {"next_probe_in": timedelta(seconds=seconds) if seconds else None}
        return {}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
