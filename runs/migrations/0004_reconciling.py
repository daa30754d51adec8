"""Verdicts of people, callbacks of downstreams, and the rules of the tables anew with them."""

from pathlib import Path

import agentcore.ids
import django.db.models.deletion
from django.db import migrations, models


FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0004_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0003_rules.sql").read_text(encoding="utf-8")
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
        ('approvals', '0002_rules'),
        ('runs', '0003_rest'),
    ]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.CreateModel(
            name='Callback',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=80)),
                ('event_id', models.CharField(max_length=255)),
                ('body_sha256', models.CharField(max_length=64)),
                ('word', models.CharField(choices=[('SUCCEEDED', 'SUCCEEDED'), ('FAILED', 'FAILED'), ('PENDING', 'PENDING')], max_length=10)),
                ('idempotency_key', models.CharField(blank=True, max_length=64)),
                ('reference', models.CharField(blank=True, max_length=200)),
                ('result', models.JSONField(null=True)),
                ('detail', models.TextField(blank=True)),
                ('sent_at', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('did', models.CharField(blank=True, max_length=16)),
                ('settled_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Reconciliation',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('verdict', models.CharField(choices=[('EFFECT_EXISTS', 'EFFECT_EXISTS'), ('EFFECT_DOES_NOT_EXIST', 'EFFECT_DOES_NOT_EXIST'), ('RESEND_SAME_KEY', 'RESEND_SAME_KEY'), ('ABANDON', 'ABANDON'), ('STILL_UNKNOWN', 'STILL_UNKNOWN')], max_length=24)),
                ('person', models.CharField(max_length=200)),
                ('evidence', models.TextField()),
                ('evidence_link', models.CharField(blank=True, max_length=500)),
                ('ground', models.CharField(blank=True, choices=[('KEY_CLOSED', 'KEY_CLOSED'), ('DOWNSTREAM_REFUSED', 'DOWNSTREAM_REFUSED'), ('ABSENT_AFTER_SETTLING', 'ABSENT_AFTER_SETTLING')], max_length=24)),
                ('downstream_ref', models.CharField(blank=True, max_length=200)),
                ('result', models.JSONField(null=True)),
                ('next_probe_at', models.DateTimeField(null=True)),
                ('action_revision', models.BigIntegerField()),
                ('sends', models.PositiveSmallIntegerField()),
                ('from_state', models.CharField(max_length=20)),
                ('to_state', models.CharField(max_length=20)),
                ('created_at', models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name='actionjournal',
            options={'permissions': [('reconcile_action', 'Can settle an action whose outcome is unknown')], 'verbose_name': 'action', 'verbose_name_plural': 'actions'},
        ),
        migrations.AddIndex(
            model_name='actionjournal',
            index=models.Index(condition=models.Q(('idempotency_key__isnull', False)), fields=['idempotency_key'], name='action_key_ix'),
        ),
        migrations.AddIndex(
            model_name='actionjournal',
            index=models.Index(condition=models.Q(('downstream_ref', ''), _negated=True), fields=['downstream_ref'], name='action_ref_ix'),
        ),
        migrations.AddField(
            model_name='callback',
            name='action',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='callbacks', to='runs.actionjournal'),
        ),
        migrations.AddField(
            model_name='reconciliation',
            name='action',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reconciliations', to='runs.actionjournal'),
        ),
        migrations.AddField(
            model_name='reconciliation',
            name='agrees_with',
            field=models.OneToOneField(null=True, on_delete=django.db.models.deletion.PROTECT, to='runs.reconciliation'),
        ),
        migrations.AddField(
            model_name='reconciliation',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reconciliations', to='runs.run'),
        ),
        migrations.AddIndex(
            model_name='callback',
            index=models.Index(condition=models.Q(('settled_at__isnull', True)), fields=['created_at'], name='callback_parked_ix'),
        ),
        migrations.AddConstraint(
            model_name='callback',
            constraint=models.UniqueConstraint(fields=('source', 'event_id'), name='callback_once'),
        ),
        migrations.AddConstraint(
            model_name='callback',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('idempotency_key', ''), _negated=True), models.Q(('reference', ''), _negated=True), _connector='OR'), name='callback_names_effect'),
        ),
        migrations.AddConstraint(
            model_name='callback',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('did', ''), ('settled_at__isnull', True)), models.Q(('settled_at__isnull', False), models.Q(('did', ''), _negated=True)), _connector='OR'), name='callback_settled_whole'),
        ),
        migrations.AddConstraint(
            model_name='reconciliation',
            constraint=models.UniqueConstraint(fields=('action', 'action_revision'), name='reconciliation_once_per_revision'),
        ),
        migrations.AddConstraint(
            model_name='reconciliation',
            constraint=models.CheckConstraint(condition=models.Q(('evidence', ''), _negated=True), name='reconciliation_has_evidence'),
        ),
        migrations.AddConstraint(
            model_name='reconciliation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('verdict', 'EFFECT_EXISTS'), _negated=True), models.Q(('downstream_ref', ''), _negated=True), _connector='OR'), name='reconciliation_effect_has_reference'),
        ),
        migrations.AddConstraint(
            model_name='reconciliation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('verdict', 'EFFECT_DOES_NOT_EXIST'), _negated=True), models.Q(('ground', ''), _negated=True), _connector='OR'), name='reconciliation_absence_has_ground'),
        ),
        migrations.RunSQL(RULES, DROP),
    ]
