from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_groups")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("retry_of__isnull", False)),
                fields=["retry_of"],
                name="run_retry_ix",
            ),
        ),
        migrations.AddIndex(
            model_name="actionjournal",
            index=models.Index(
                condition=models.Q(("resource_key", ""), _negated=True),
                fields=["resource_key"],
                name="action_resource_ix",
            ),
        ),
    ]
