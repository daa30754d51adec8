"""Thresholds, switches, anchors of the audit, edits; the rules of the tables anew with them."""

from pathlib import Path

import agentcore.ids
import django.db.models.deletion
from django.db import migrations, models


FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0008_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0006_rules.sql").read_text(encoding="utf-8")
DROP = "".join(
    f"DROP FUNCTION {name} CASCADE;"
    for name in (
        "runs_refuse",
        "runs_run_move",
        "runs_actionjournal_move",
        "runs_run_settled",
        "runs_run_allows",
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0007_limits'),
    ]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.CreateModel(
            name='AuditAnchor',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.BigIntegerField(unique=True)),
                ('count', models.PositiveIntegerField()),
                ('entries_sha256', models.CharField(max_length=64)),
                ('hash', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='SwitchChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=8)),
                ('name', models.CharField(max_length=120)),
                ('is_off', models.BooleanField()),
                ('reason', models.TextField()),
                ('changed_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name='run',
            options={'permissions': [('cancel_run', 'Can cancel a run'), ('retry_run', 'Can start a run again'), ('pause_run', 'Can pause and resume a run'), ('reveal_redacted', 'Can see what tools keep secret'), ('pause_agent', 'Can switch agents and tools off and on'), ('manage_policy', 'Can set thresholds of the policy'), ('manage_budget', 'Can change what a run may use'), ('replay_webhook', 'Can send a webhook again'), ('bulk_operate', 'Can act on many runs at once')]},
        ),
        migrations.AddField(
            model_name='actionjournal',
            name='edited_by',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.CreateModel(
            name='Controls',
            fields=[
                ('id', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('stamp', models.UUIDField()),
            ],
            options={
                'verbose_name_plural': 'controls',
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='controls_one_row')],
            },
        ),
        migrations.CreateModel(
            name='PolicyThreshold',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(blank=True, max_length=64)),
                ('tool', models.CharField(max_length=120)),
                ('argument', models.CharField(blank=True, max_length=200)),
                ('op', models.CharField(default='always', max_length=8)),
                ('value', models.JSONField(null=True)),
                ('verdict', models.CharField(choices=[('ASK', 'ask a person'), ('DENY', 'refuse')], default='ASK', max_length=4)),
                ('role', models.CharField(blank=True, max_length=80)),
                ('quorum', models.PositiveSmallIntegerField(default=1)),
                ('ttl_seconds', models.PositiveIntegerField(null=True)),
                ('reason', models.TextField()),
                ('created_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
                ('retired_at', models.DateTimeField(null=True)),
                ('retired_by', models.CharField(blank=True, max_length=200)),
                ('retire_reason', models.TextField(blank=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='threshold_has_reason'), models.CheckConstraint(condition=models.Q(('verdict__in', ['ASK', 'DENY'])), name='threshold_verdict_known')],
            },
        ),
        migrations.CreateModel(
            name='Switch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('AGENT', 'agent'), ('TOOL', 'tool')], max_length=8)),
                ('name', models.CharField(max_length=120)),
                ('is_off', models.BooleanField()),
                ('held', models.BooleanField(default=False)),
                ('reason', models.TextField()),
                ('changed_by', models.CharField(max_length=200)),
                ('changed_at', models.DateTimeField()),
            ],
            options={
                'verbose_name_plural': 'switches',
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='switch_once'), models.CheckConstraint(condition=models.Q(('kind__in', ['AGENT', 'TOOL'])), name='switch_kind'), models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='switch_has_reason')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('run_id', models.UUIDField()),
                ('seq', models.BigIntegerField()),
                ('hash', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField()),
                ('anchor', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='runs.auditanchor')),
            ],
            options={
                'verbose_name_plural': 'audit entries',
                'constraints': [models.UniqueConstraint(fields=('run_id', 'seq'), name='audit_entry_once')],
            },
        ),
        migrations.RunSQL(RULES, DROP),
    ]
