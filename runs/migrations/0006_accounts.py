"""Evidence, the account of a run and its limits, and the rules of the tables anew with them."""

from pathlib import Path

import agentcore.ids
import django.db.models.deletion
from django.db import migrations, models

FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0006_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0004_rules.sql").read_text(encoding="utf-8")
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
        ('runs', '0005_worker_swept_at'),
    ]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.AddField(
            model_name='run',
            name='cost_held',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='run',
            name='cost_used',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='run',
            name='failure',
            field=models.JSONField(null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='max_cost',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='max_failures',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='max_tokens',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='run',
            name='progress_from',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='run',
            name='tokens_held',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='run',
            name='tokens_used',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='run',
            name='stop_reason',
            field=models.CharField(choices=[('CANCEL', 'CANCEL'), ('DEADLINE', 'DEADLINE'), ('BUDGET', 'BUDGET'), ('NO_PROGRESS', 'NO_PROGRESS'), ('REFUSED', 'REFUSED'), ('UNVERIFIED', 'UNVERIFIED'), ('MODEL_ERROR', 'MODEL_ERROR'), ('TOOL_ERROR', 'TOOL_ERROR'), ('CONTEXT_ERROR', 'CONTEXT_ERROR'), ('GUARDRAIL', 'GUARDRAIL'), ('PERMISSION', 'PERMISSION'), ('RUNTIME_ERROR', 'RUNTIME_ERROR')], max_length=20, null=True),
        ),
        migrations.CreateModel(
            name='Evidence',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('turn', models.PositiveIntegerField()),
                ('source', models.CharField(max_length=200)),
                ('about', models.CharField(blank=True, max_length=200)),
                ('version', models.CharField(blank=True, max_length=200)),
                ('sha256', models.CharField(max_length=64)),
                ('verified', models.BooleanField()),
                ('observed_at', models.DateTimeField()),
                ('created_at', models.DateTimeField()),
                ('action', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='evidence', to='runs.actionjournal')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='evidence', to='runs.run')),
            ],
            options={
                'verbose_name_plural': 'evidence',
                'constraints': [models.UniqueConstraint(condition=models.Q(('action__isnull', False)), fields=('action', 'source'), name='evidence_once_per_source')],
            },
        ),
        migrations.CreateModel(
            name='Ledger',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('turn', models.PositiveIntegerField()),
                ('entry', models.CharField(choices=[('RESERVE', 'RESERVE'), ('SETTLE', 'SETTLE'), ('CORRECT', 'CORRECT')], max_length=8)),
                ('model', models.CharField(max_length=120)),
                ('input_tokens', models.BigIntegerField()),
                ('cached_tokens', models.BigIntegerField(default=0)),
                ('output_tokens', models.BigIntegerField()),
                ('cost', models.BigIntegerField(default=0)),
                ('price_from', models.DateField(null=True)),
                ('estimated', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField()),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger', to='runs.attempt')),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ledger', to='runs.run')),
            ],
            options={
                'verbose_name': 'ledger line',
                'constraints': [models.UniqueConstraint(fields=('attempt', 'entry'), name='ledger_once'), models.CheckConstraint(condition=models.Q(('entry__in', ['RESERVE', 'SETTLE', 'CORRECT'])), name='ledger_entry_known')],
            },
        ),
        migrations.RunSQL(RULES, DROP),
    ]
