from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class RunsConfig(AppConfig):
    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Find the tools and agents of every installed app; an import error there is fatal."""
        from django.conf import settings
        from django.db import connections

        from runs import checks, migrating  # noqa: F401  (registers the system checks)
        from tools.limits import at_thread_end
        from tools.spec import DEFAULTS

        at_thread_end(connections.close_all)  # a tool's function may use the ORM in its thread
        DEFAULTS.timeout = settings.AGENTCORE_OPTIONS.tool_timeout

        migrating.connect(self)
        autodiscover_modules("agent_tools")
        autodiscover_modules("agents")
