"""The tables of the REST interface, and the rules of the tables anew with their columns."""

import agentcore.ids
from pathlib import Path

import django.contrib.postgres.indexes
import django.db.models.deletion
from django.db import migrations, models


FOLDER = Path(__file__).with_name("sql")
RULES = (FOLDER / "0003_rules.sql").read_text(encoding="utf-8")
RULES_BEFORE = (FOLDER / "0002_rules.sql").read_text(encoding="utf-8")
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
        ('runs', '0002_rules'),
    ]

    operations = [
        migrations.RunSQL(DROP, RULES_BEFORE),
        migrations.CreateModel(
            name='BulkItem',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ordinal', models.PositiveIntegerField()),
                ('outcome', models.CharField(choices=[('PENDING', 'pending'), ('DONE', 'done'), ('REFUSED', 'refused')], default='PENDING', max_length=10)),
                ('code', models.CharField(blank=True, max_length=40)),
                ('detail', models.CharField(blank=True, max_length=300)),
                ('done_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='BulkOperation',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(max_length=64)),
                ('verb', models.CharField(max_length=20)),
                ('filter', models.JSONField(default=dict)),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('status', models.CharField(choices=[('PREVIEW', 'preview'), ('READY', 'ready'), ('RUNNING', 'running'), ('COMPLETED', 'completed'), ('ABORTED', 'aborted')], max_length=10)),
                ('total', models.PositiveIntegerField()),
                ('confirm_sha256', models.CharField(blank=True, max_length=64)),
                ('created_by', models.CharField(max_length=200)),
                ('scopes', models.JSONField(default=list)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(null=True)),
                ('started_by', models.CharField(blank=True, max_length=200)),
                ('ended_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(max_length=64)),
                ('agent', models.CharField(blank=True, max_length=80)),
                ('metadata', models.JSONField(default=dict)),
                ('created_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
                ('deleted_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='WebhookDelivery',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(max_length=64)),
                ('seq', models.BigIntegerField()),
                ('type', models.CharField(max_length=40)),
                ('status', models.CharField(choices=[('PENDING', 'pending'), ('DELIVERED', 'delivered'), ('DEAD', 'dead')], default='PENDING', max_length=10)),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('next_try_at', models.DateTimeField()),
                ('claim', models.UUIDField(null=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('last_try_at', models.DateTimeField(null=True)),
                ('last_status', models.PositiveSmallIntegerField(null=True)),
                ('last_error', models.CharField(blank=True, max_length=300)),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name_plural': 'webhook deliveries',
            },
        ),
        migrations.CreateModel(
            name='WebhookEndpoint',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.CharField(max_length=64)),
                ('url', models.CharField(max_length=2000)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('events', models.JSONField(default=list)),
                ('salt', models.CharField(max_length=64)),
                ('secret_version', models.PositiveIntegerField(default=1)),
                ('previous_until', models.DateTimeField(null=True)),
                ('created_by', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
                ('disabled_at', models.DateTimeField(null=True)),
                ('disabled_reason', models.CharField(blank=True, max_length=200)),
                ('deleted_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='apitoken',
            name='agents',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='run',
            name='on_behalf_of',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name='run',
            name='pause_asked_by',
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name='run',
            name='retry_of',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.run'),
        ),
        migrations.AddIndex(
            model_name='event',
            index=django.contrib.postgres.indexes.BrinIndex(fields=['created_at'], name='event_time_ix', pages_per_range=16),
        ),
        migrations.AddIndex(
            model_name='idempotencyrecord',
            index=django.contrib.postgres.indexes.BrinIndex(fields=['created_at'], name='idempotency_age_ix'),
        ),
        migrations.AddField(
            model_name='bulkitem',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.run'),
        ),
        migrations.AddIndex(
            model_name='bulkoperation',
            index=models.Index(fields=['tenant', 'id'], name='bulk_tenant_ix'),
        ),
        migrations.AddIndex(
            model_name='bulkoperation',
            index=models.Index(condition=models.Q(('status', 'RUNNING')), fields=['id'], name='bulk_running_ix'),
        ),
        migrations.AddField(
            model_name='bulkitem',
            name='operation',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='runs.bulkoperation'),
        ),
        migrations.AddIndex(
            model_name='session',
            index=models.Index(fields=['tenant', 'id'], name='session_tenant_ix'),
        ),
        migrations.AddField(
            model_name='run',
            name='session',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='runs.session'),
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='run',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.run'),
        ),
        migrations.AddIndex(
            model_name='webhookendpoint',
            index=models.Index(condition=models.Q(('deleted_at__isnull', True), ('disabled_at__isnull', True)), fields=['tenant'], name='webhook_live_ix'),
        ),
        migrations.AddField(
            model_name='webhookdelivery',
            name='endpoint',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.webhookendpoint'),
        ),
        migrations.AddField(
            model_name='run',
            name='webhook_endpoint',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs.webhookendpoint'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('session__isnull', False)), fields=['session', 'id'], name='run_session_ix'),
        ),
        migrations.AddConstraint(
            model_name='bulkitem',
            constraint=models.UniqueConstraint(fields=('operation', 'run'), name='bulk_item_once'),
        ),
        migrations.AddConstraint(
            model_name='bulkitem',
            constraint=models.UniqueConstraint(fields=('operation', 'ordinal'), name='bulk_item_order'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('status', 'PENDING')), fields=['next_try_at'], name='delivery_due_ix'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(fields=['tenant', 'created_at'], name='delivery_tenant_ix'),
        ),
        migrations.AddIndex(
            model_name='webhookdelivery',
            index=models.Index(condition=models.Q(('status', 'PENDING')), fields=['endpoint', 'next_try_at'], name='delivery_of_endpoint_ix'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.UniqueConstraint(fields=('endpoint', 'run', 'seq'), name='delivery_once'),
        ),
        migrations.AddConstraint(
            model_name='webhookdelivery',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['PENDING', 'DELIVERED', 'DEAD'])), name='delivery_status_known'),
        ),
        migrations.RunSQL(RULES, DROP),
    ]
