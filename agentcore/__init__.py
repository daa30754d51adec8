"""Pure rules of the runtime: what may happen next. No Django, no Celery, no clock."""
