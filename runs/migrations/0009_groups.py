"""The groups of the console and what they may do; who belongs to them is the operator's choice.

An installation may change them afterwards: they are made once and never set again.
"""

from django.db import migrations

VIEW = [
    *(
        ("runs", model, f"view_{model}")
        for model in (
            "actionjournal agentversion attempt auditanchor bulkoperation event evidence incident"
            " ledger policythreshold reconciliation run session switch switchchange turn"
            " webhookdelivery webhookendpoint worker"
        ).split()
    ),
    *(
        ("approvals", model, f"view_{model}")
        for model in ("approval", "approvalvote", "standingapproval")
    ),
]
DECIDE = [("approvals", "approval", name) for name in ("decide_approval", "edit_arguments")]
SENIOR = [("approvals", "approval", "decide_high_risk"), ("runs", "run", "reveal_redacted")]
ON_CALL = [
    ("runs", "actionjournal", "reconcile_action"),
    *(
        ("runs", "run", name)
        for name in (
            "cancel_run retry_run pause_run pause_agent replay_webhook bulk_operate".split()
        )
    ),
]
MANAGE = [("runs", "run", name) for name in ("manage_policy", "manage_budget")]

GROUPS = {
    "agent_viewer": VIEW,
    "agent_approver": [*VIEW, *DECIDE],
    "agent_senior_approver": [*VIEW, *DECIDE, *SENIOR],
    "agent_oncall": [*VIEW, *ON_CALL],
    "agent_admin": [*VIEW, *DECIDE, *SENIOR, *ON_CALL, *MANAGE],
}


def create_groups(apps, schema_editor):
    """Make groups and permissions; Django itself would make the permissions only later."""
    content_types = apps.get_model("contenttypes", "ContentType")
    permissions = apps.get_model("auth", "Permission")
    groups = apps.get_model("auth", "Group")
    found = {}
    for name, wanted in GROUPS.items():
        group, _ = groups.objects.get_or_create(name=name)
        for app, model, codename in wanted:
            if (app, model, codename) not in found:
                kind, _ = content_types.objects.get_or_create(app_label=app, model=model)
                label = f"Can {codename.replace('_', ' ')}"
                found[app, model, codename], _ = permissions.objects.get_or_create(
                    content_type=kind, codename=codename, defaults={"name": label}
                )
            group.permissions.add(found[app, model, codename])


class Migration(migrations.Migration):

    dependencies = [
        ("approvals", "0003_decisions"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("runs", "0008_controls"),
    ]

    operations = [migrations.RunPython(create_groups, migrations.RunPython.noop)]
