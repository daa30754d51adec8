"""Why a model call gave nothing, in words for the operator: the code of a failure -> its cause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What kind of trouble it is; it decides who has to do something."""

    RATE_LIMIT = "RATE_LIMIT"
    OVERLOADED = "OVERLOADED"
    NETWORK = "NETWORK"
    UNREADABLE = "UNREADABLE"
    QUOTA = "QUOTA"
    KEY = "KEY"
    TOO_LONG = "TOO_LONG"
    MODEL = "MODEL"
    CONTENT = "CONTENT"
    REQUEST = "REQUEST"
    OTHER = "OTHER"


_CODES: dict[Cause, str] = {
    Cause.RATE_LIMIT: "rate_limit_exceeded tokens requests http_429 slow_down",
    Cause.OVERLOADED: (
        "server_error server_is_overloaded service_unavailable_error overloaded_error "
        "vector_store_timeout http_500 http_502 http_503 http_504 http_529"
    ),
    Cause.NETWORK: "timeout connection_error http_408",
    Cause.UNREADABLE: (
        "reply_not_json reply_not_a_response reply_not_finished reply_cancelled reply_too_large "
        "reply_not_utf8 stream_cut client_error"
    ),
    Cause.QUOTA: "insufficient_quota billing_hard_limit_reached billing_not_active http_402",
    Cause.KEY: (
        "no_api_key invalid_api_key authentication_error permission_denied "
        "invalid_organization http_401 http_403"
    ),
    Cause.TOO_LONG: "context_length_exceeded string_above_max_length http_413",
    Cause.MODEL: "model_not_found http_404",
    Cause.CONTENT: "invalid_prompt bio_policy content_policy_violation content_filter",
    Cause.REQUEST: (
        "invalid_request_error unknown_parameter invalid_value invalid_encrypted_content "
        "request_not_json http_400 http_422"
    ),
}
_CAUSE_OF = {code: cause for cause, codes in _CODES.items() for code in codes.split()}

_ADVICE = {
    Cause.RATE_LIMIT: "the provider limits the rate; raise the limit or start fewer runs at once",
    Cause.OVERLOADED: "the provider is overloaded or broken",
    Cause.NETWORK: "the provider could not be reached in time; check the network and the address",
    Cause.UNREADABLE: (
        "what answered is not the API, or its answer was cut; check the address and any proxy"
    ),
    Cause.QUOTA: "the account has no quota left; check its plan and billing",
    Cause.KEY: "the provider refuses the API key; set a valid one and start the run again",
    Cause.TOO_LONG: "the request is longer than the model takes in, also after compaction",
    Cause.MODEL: "the provider does not know the model; check the agent's model",
    Cause.CONTENT: "the provider refuses the content of the request",
    Cause.REQUEST: "the provider refuses the request as malformed; this is a defect of the runtime",
    Cause.OTHER: "the provider gave a reason that is not known here",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """`cause` for code, `advice` for people."""

    cause: Cause
    advice: str


def explain(code: str) -> Explained:
    """What a failure's code means. Unknown codes are OTHER."""
    cause = _CAUSE_OF.get(code, Cause.OTHER)
    if cause is Cause.OTHER and code.startswith("http_5"):
        cause = Cause.OVERLOADED
    return Explained(cause, _ADVICE[cause])
