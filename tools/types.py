"""Types for the parameters of tools: Money, which has one spelling, and Secret, which hides."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Generic, NoReturn, TypeVar, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema, to_jsonable_python

T = TypeVar("T")

REDACTED = "[redacted]"
REVEAL = {"reveal": True}
"""The serialization context under which a Secret shows itself: `model_dump(context=REVEAL)`."""

_TWO_DIGITS = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BTN BWP BYN BZD "
    "CAD CDF CHF CNY COP CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD "
    "GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD "
    "MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP "
    "PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS "
    "TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD YER ZAR ZMW ZWG"
)
_NO_DIGITS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF"
_THREE_DIGITS = "BHD IQD JOD KWD LYD OMR TND"

SCALES: dict[str, int] = {
    **dict.fromkeys(_TWO_DIGITS.split(), 2),
    **dict.fromkeys(_NO_DIGITS.split(), 0),
    **dict.fromkeys(_THREE_DIGITS.split(), 3),
}
"""Digits after the point, by ISO 4217 currency code."""

_AMOUNT = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.([0-9]{1,3}))?")
_MONEY_PATTERN = r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,3})? [A-Z]{3}$"


class Money:
    """An exact amount in one currency: `Money("80.00", "EUR")` or `Money("80.00 EUR")`.

    Equal amounts have one spelling, so they hash equally: missing digits are filled up
    (`80 EUR` is `80.00 EUR`); more digits than the currency has, floats, NaN and exponents raise
    ValueError. Amounts of two currencies are never equal, and comparing or adding them raises
    ValueError.
    """

    __slots__ = ("_amount", "_currency")
    _amount: Decimal
    _currency: str

    def __init__(self, amount: str | int | Decimal, currency: str | None = None) -> None:
        if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
            raise ValueError("money is text, a whole number or a Decimal, never a float")  # noqa: TRY004
        text = f"{amount:f}" if isinstance(amount, Decimal) else str(amount)
        if currency is None:
            text, _, currency = text.partition(" ")
        object.__setattr__(self, "_currency", _known_currency(currency))
        object.__setattr__(self, "_amount", _exact(text, currency))

    @property
    def amount(self) -> Decimal:
        """The exact amount, with as many digits as the currency has."""
        return self._amount

    @property
    def currency(self) -> str:
        """The ISO 4217 code."""
        return self._currency

    @property
    def minor(self) -> int:
        """The amount in the smallest unit of the currency, e.g. cents."""
        return int(self._amount.scaleb(SCALES[self._currency]))

    @classmethod
    def from_minor(cls, units: int, currency: str) -> Money:
        """The amount of so many smallest units: `from_minor(8000, "EUR")` is 80.00 EUR."""
        return cls(Decimal(units).scaleb(-SCALES[_known_currency(currency)]), currency)

    def __str__(self) -> str:
        return f"{self._amount:f} {self._currency}"

    def __repr__(self) -> str:
        return f"Money('{self}')"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("money does not change")

    def __reduce__(self) -> tuple[type[Money], tuple[str]]:
        return Money, (str(self),)

    def __hash__(self) -> int:
        return hash((self._amount, self._currency))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Money):
            return NotImplemented
        return (self._amount, self._currency) == (other._amount, other._currency)

    def _of_same_currency(self, other: object) -> Decimal:
        if not isinstance(other, Money):
            raise TypeError(f"cannot compare or add money and {type(other).__name__}")
        if other.currency != self._currency:
            raise ValueError(f"{self} and {other} are in two currencies")
        return other.amount

    def __lt__(self, other: Money) -> bool:
        return self._amount < self._of_same_currency(other)

    def __le__(self, other: Money) -> bool:
        return self._amount <= self._of_same_currency(other)

    def __gt__(self, other: Money) -> bool:
        return self._amount > self._of_same_currency(other)

    def __ge__(self, other: Money) -> bool:
        return self._amount >= self._of_same_currency(other)

    def __add__(self, other: Money) -> Money:
        return Money(self._amount + self._of_same_currency(other), self._currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self._amount - self._of_same_currency(other), self._currency)

    def __neg__(self) -> Money:
        return Money(-self._amount, self._currency)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from_text = core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(strict=True)
        )
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema(
                [core_schema.is_instance_schema(cls), from_text]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": _MONEY_PATTERN,
            "description": 'An exact amount and an ISO 4217 currency code, e.g. "80.00 EUR".',
        }


def _known_currency(currency: str) -> str:
    if currency not in SCALES:
        raise ValueError(
            f"{currency[:10]!r} is not an ISO 4217 currency code; write e.g. 80.00 EUR"
        )
    return currency


def _exact(text: str, currency: str) -> Decimal:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:40]!r} is not an exact amount; write e.g. 80.00, with no sign but a minus, "
            "no exponent and no thousands separator"
        )
    scale = SCALES[currency]
    if len(match[3] or "") > scale:
        raise ValueError(f"{text[:40]} {currency} has more than {scale} digits after the point")
    return Decimal(text).quantize(Decimal(1).scaleb(-scale)) + 0  # + 0 turns -0.00 into 0.00


class Secret(Generic[T]):
    """A value that does not show itself: not in repr, str, logs, nor in JSON made without REVEAL.

    The journal must keep what it will execute, so arguments are stored revealed; everything that
    shows them to people goes through `tools.invocation.redacted`.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({REDACTED})"

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, spec: str) -> str:
        return format(REDACTED, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner = handler.generate_schema(get_args(source)[0] if get_args(source) else str)
        wrapped = core_schema.no_info_after_validator_function(cls, inner)
        return core_schema.json_or_python_schema(
            json_schema=wrapped,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), wrapped]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                _show_secret, info_arg=True, when_used="json"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        inner = schema["json_schema"] if schema["type"] == "json-or-python" else schema
        return handler(inner)


def _show_secret(secret: Secret[Any], info: core_schema.SerializationInfo) -> Any:
    if isinstance(info.context, dict) and info.context.get("reveal") is True:
        return to_jsonable_python(secret.reveal(), fallback=str)
    return REDACTED
