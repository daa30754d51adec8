"""Quorum beyond one role, edits, renewals, claims, standing approvals; the rules anew with them."""

from pathlib import Path

import agentcore.ids
from django.db import migrations, models


FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0003_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0002_rules.sql").read_text(encoding="utf-8")
DROP = "".join(
    f"DROP FUNCTION {name} CASCADE;" for name in ("approvals_refuse", "approvals_approval_move")
)


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0002_rules'),
    ]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.CreateModel(
            name='StandingApproval',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(max_length=64)),
                ('tool', models.CharField(max_length=120)),
                ('tool_version', models.CharField(max_length=40)),
                ('agent', models.CharField(blank=True, max_length=80)),
                ('principal', models.CharField(blank=True, max_length=200)),
                ('conditions', models.JSONField(default=list)),
                ('max_uses', models.PositiveIntegerField(null=True)),
                ('uses', models.PositiveIntegerField(default=0)),
                ('expires_at', models.DateTimeField()),
                ('granted_by', models.CharField(max_length=200)),
                ('reason', models.TextField()),
                ('created_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(null=True)),
                ('revoked_by', models.CharField(blank=True, max_length=200)),
                ('revoke_reason', models.TextField(blank=True)),
            ],
        ),
        migrations.AlterModelOptions(
            name='approval',
            options={'permissions': [('decide_approval', 'Can approve or reject an action'), ('decide_high_risk', 'Can decide what is hard to undo, and give standing approvals'), ('edit_arguments', 'Can change the arguments of an action before it is approved')]},
        ),
        migrations.RemoveConstraint(
            model_name='approvalvote',
            name='vote_decision_known',
        ),
        migrations.AddField(
            model_name='approval',
            name='claimed_by',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name='approval',
            name='claimed_until',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='editor',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name='approval',
            name='high_risk',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='approval',
            name='policy_reason',
            field=models.TextField(blank=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='renewal',
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='approval',
            name='standing',
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='supersedes',
            field=models.UUIDField(null=True),
        ),
        migrations.AddField(
            model_name='approval',
            name='tool_digest',
            field=models.CharField(blank=True, max_length=64),
        ),
        migrations.AddField(
            model_name='approval',
            name='validation',
            field=models.JSONField(null=True),
        ),
        migrations.AlterField(
            model_name='approval',
            name='role',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AlterField(
            model_name='approvalvote',
            name='decision',
            field=models.CharField(choices=[('APPROVE', 'approve'), ('REJECT', 'reject'), ('RESPOND', 'respond')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='approvalvote',
            constraint=models.CheckConstraint(condition=models.Q(('decision__in', ['APPROVE', 'REJECT', 'RESPOND'])), name='vote_decision_known'),
        ),
        migrations.AddIndex(
            model_name='standingapproval',
            index=models.Index(condition=models.Q(('revoked_at__isnull', True)), fields=['tenant', 'tool'], name='standing_live_ix'),
        ),
        migrations.AddConstraint(
            model_name='standingapproval',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='standing_has_reason'),
        ),
        migrations.AddConstraint(
            model_name='standingapproval',
            constraint=models.CheckConstraint(condition=models.Q(('max_uses__isnull', True), ('uses__lte', models.F('max_uses')), _connector='OR'), name='standing_uses_bounded'),
        ),
        migrations.RunSQL(RULES, DROP),
    ]
