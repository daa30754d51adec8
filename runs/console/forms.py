"""What a reviewer may post."""

from __future__ import annotations

from django import forms

from runs.approving import MAX_REASON

_REASON = forms.Textarea(attrs={"rows": 4, "maxlength": MAX_REASON})


class DecisionForm(forms.Form):
    """One decision about the content whose hash the page showed. A rejection needs its reason."""

    approval_id = forms.UUIDField(widget=forms.HiddenInput)
    params_hash = forms.RegexField(r"^[0-9a-f]{64}$", widget=forms.HiddenInput)
    decision = forms.ChoiceField(choices=[("APPROVE", "approve"), ("REJECT", "reject")])
    reason = forms.CharField(required=False, max_length=MAX_REASON, widget=_REASON)
