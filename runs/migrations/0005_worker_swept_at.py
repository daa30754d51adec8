"""When a worker process last swept: written with its beat."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_reconciling")]

    operations = [
        migrations.AddField(
            model_name="worker", name="swept_at", field=models.DateTimeField(null=True)
        ),
    ]
