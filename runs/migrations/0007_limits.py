"""What counts against a limit of calls at once or in a minute, and who waits for it."""

import agentcore.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0006_accounts'),
    ]

    operations = [
        migrations.CreateModel(
            name='LimitUse',
            fields=[
                ('id', models.UUIDField(default=agentcore.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('bucket', models.CharField(max_length=200)),
                ('attempt_id', models.UUIDField()),
                ('taken_at', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('released_at', models.DateTimeField(null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['bucket', 'taken_at'], name='limituse_bucket_ix'), models.Index(fields=['attempt_id'], name='limituse_attempt_ix')],
            },
        ),
        migrations.CreateModel(
            name='LimitWait',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('bucket', models.CharField(max_length=200)),
                ('since', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['bucket', 'since'], name='limitwait_bucket_ix')],
            },
        ),
    ]
