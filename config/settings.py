"""Django settings, read from the environment. `docs/` lists the variables.

Without DATABASE_URL and REDIS_URL the addresses come from the embedded servers of this checkout,
when they run (`make run`, `make demo`).
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from config.addresses import AddressError, check_redis_url, running_stack
from config.apps_setting import tool_apps
from config.broker import celery_settings
from config.database import databases
from config.local import local_secret
from config.logs import logging_settings
from config.options import Options, OptionsError, load_options
from runs.api.openapi import SPECTACULAR_SETTINGS  # noqa: F401  (a setting)

BASE_DIR = Path(__file__).resolve().parent.parent
RUN_DIR = Path(os.environ.get("AGENTCORE_RUN_DIR") or BASE_DIR / ".run")
PRODUCTION = os.environ.get("AGENTCORE_ENV", "local") == "production"
DEBUG = os.environ.get("AGENTCORE_DEBUG") == "1"
if PRODUCTION and DEBUG:
    raise ImproperlyConfigured("AGENTCORE_DEBUG=1 is refused with AGENTCORE_ENV=production")


def _secret(variable: str, name: str) -> str:
    given = os.environ.get(variable)
    if given:
        return given
    if PRODUCTION:
        raise ImproperlyConfigured(f"{variable} must be set with AGENTCORE_ENV=production")
    try:
        return local_secret(folder=RUN_DIR, name=name)
    except OSError as error:
        raise ImproperlyConfigured(
            f"{error}: set {variable}, or AGENTCORE_RUN_DIR to a folder that can be written"
        ) from None


def _list(variable: str, default: str = "") -> list[str]:
    text = os.environ.get(variable, default)
    return [item.strip() for item in text.split(",") if item.strip()]


SECRET_KEY = _secret("SECRET_KEY", "secret_key")
ALLOWED_HOSTS = _list("AGENTCORE_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _list("AGENTCORE_CSRF_TRUSTED_ORIGINS")

_running = {} if PRODUCTION else running_stack(RUN_DIR)
DATABASE_URL = os.environ.get("DATABASE_URL") or _running.get("DATABASE_URL", "")
REDIS_URL = os.environ.get("REDIS_URL") or _running.get("REDIS_URL", "")
try:
    DATABASES = databases(
        url=DATABASE_URL,
        application_name=os.environ.get("AGENTCORE_PROCESS", "agentcore"),
        pooled=os.environ.get("AGENTCORE_DATABASE_POOL", "1") == "1",
    )
    if REDIS_URL:
        check_redis_url(REDIS_URL)
except AddressError as error:
    raise ImproperlyConfigured(str(error)) from None

# Templates of ours come before those of Django's admin.
INSTALLED_APPS = [
    *tool_apps(os.environ.get("AGENTCORE_APPS", "")),
    "approvals",
    "runs",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
MIDDLEWARE = [
    "config.headers.SecurityHeaders",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = os.environ.get("AGENTCORE_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None  # serves the apps' own files without collectstatic

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SECURE_SSL_REDIRECT = PRODUCTION and os.environ.get("AGENTCORE_SSL_REDIRECT", "1") == "1"
SECURE_HSTS_SECONDS = 31_536_000 if PRODUCTION else 0
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
if os.environ.get("AGENTCORE_PROXY_SSL_HEADER") == "1":
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
}

AGENTCORE: dict[str, object] = {}
try:
    _options = load_options(values=AGENTCORE, environment=os.environ)
except OptionsError as error:
    raise ImproperlyConfigured(str(error)) from None
AGENTCORE_OPTIONS: Options = (
    _options
    if _options.event_key
    else _options.model_copy(
        update={"event_key": _secret("AGENTCORE_EVENT_KEY", "event_key").encode()}
    )
)

# `memory://` never works between processes: without a broker, hints fail and the sweep does all.
_celery = celery_settings(
    broker_url=REDIS_URL or "redis://127.0.0.1:1/0",
    prefix=os.environ.get("AGENTCORE_BROKER_PREFIX", "agentcore:"),
    threads=AGENTCORE_OPTIONS.threads,
)
globals().update({f"CELERY_{name.upper()}": value for name, value in _celery.items()})

LOGGING = logging_settings(
    level=os.environ.get("AGENTCORE_LOG_LEVEL", "INFO").upper(),
    style=os.environ.get("AGENTCORE_LOG_STYLE", "json"),
)
