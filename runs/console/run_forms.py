"""What a person may post to a run."""

from __future__ import annotations

from decimal import Decimal

from django import forms

from runs.pausing import NewLimits
from runs.takeover import MAX_EVIDENCE


class ResumeForm(forms.Form):
    """New limits for a run that goes on; an empty field leaves the limit."""

    max_turns = forms.IntegerField(required=False, min_value=1, max_value=10_000)
    max_actions = forms.IntegerField(required=False, min_value=1, max_value=10_000)
    max_tokens = forms.IntegerField(required=False, min_value=1, max_value=10**12)
    max_cost = forms.DecimalField(
        required=False, min_value=Decimal(0), max_value=Decimal(1_000_000), decimal_places=6
    )

    @property
    def limits(self) -> NewLimits:
        """The limits, the cost in millionths of a US dollar."""
        given = self.cleaned_data
        cost = given["max_cost"]
        return NewLimits(
            max_turns=given["max_turns"],
            max_actions=given["max_actions"],
            max_tokens=given["max_tokens"],
            max_cost=int(cost * 1_000_000) if cost is not None else None,
        )


class ByHandForm(forms.Form):
    """What a person did in the place of an action, and how that can be seen."""

    action_id = forms.UUIDField()
    reference = forms.CharField(max_length=200)
    evidence = forms.CharField(max_length=MAX_EVIDENCE)
