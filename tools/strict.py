"""pydantic's JSON schema -> the strict subset that model providers accept.

Strict means: every object lists all its properties as required and allows no others, an optional
property is nullable, and there is no `default`. What has no strict form is a problem, not a guess.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any

from agentcore.values import Json

MONEY_NAME = re.compile(
    r"(^|_)(amounts?|prices?|costs?|totals?|subtotal|fees?|balance|refund(ed|able)?|payments?|paid|"
    r"charges?|money|salary|tax(es)?|discounts?|sum|credit|debit|eur|usd|gbp|due|budget)"
    r"($|_)"
)
_KEPT = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref",
    "$defs", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
}  # fmt: skip
_DROPPED = {"title", "default", "examples", "discriminator", "deprecated", "readOnly", "writeOnly"}
_FORMATS = {
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
}  # fmt: skip
_DEFS = "#/$defs/"


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a declaration: a code such as E003 or W101, and a sentence."""

    code: str
    message: str


@dataclass
class _Converter:
    defs: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, code: str, path: str, message: str) -> None:
        self.problems.append(Problem(code, f"{path}: {message}" if path else message))

    def convert(self, given: Any, path: str) -> dict[str, Json]:
        """One schema node in strict form; notes a problem for what has none."""
        if not isinstance(given, dict) or not given.keys() - _DROPPED - {"description"}:
            self.refuse("E003", path, "any value is allowed; name the type")
            return {}
        node: dict[str, Any] = {k: value for k, value in given.items() if k not in _DROPPED}
        node = self._without_synonyms(node)
        if "$ref" in node:
            return self._reference(node)
        for key in sorted(node.keys() - _KEPT):
            self.refuse("E008", path, f"`{key}` has no strict form")
        if "anyOf" in node:
            node["anyOf"] = [self.convert(variant, path) for variant in node["anyOf"]]
            return node
        return self._typed(node, path)

    def _without_synonyms(self, node: dict[str, Any]) -> dict[str, Any]:
        """Rewrite keywords that only say in another way what a strict one says."""
        if "oneOf" in node:
            node["anyOf"] = node.pop("oneOf")
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if len(node.get("allOf", ())) == 1:
            node = {**node.pop("allOf")[0], **node}
        if node.get("format") not in _FORMATS | {None, "binary", "base64"}:
            del node["format"]
        low, high = node.pop("minLength", None), node.pop("maxLength", None)
        if low is not None or high is not None:
            words = f"At least {low} characters." if high is None else f"At most {high} characters."
            if low is not None and high is not None:
                words = f"{low} to {high} characters."
            node["description"] = f"{node.get('description', '')} {words}".strip()
        return node

    def _reference(self, node: dict[str, Any]) -> dict[str, Json]:
        if node.keys() == {"$ref"}:
            return node
        # A reference may have no neighbours in strict mode, so a described one is copied in.
        target = copy.deepcopy(self.defs[node["$ref"].removeprefix(_DEFS)])
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return self.convert({**target, **rest}, "")

    def _typed(self, node: dict[str, Any], path: str) -> dict[str, Json]:
        kind = node.get("type")
        name = re.split(r"[.\[]", path)[-1]
        if kind == "number":
            if MONEY_NAME.search(name):
                self.refuse("E004", path, "money must not be a float; use tools.types.Money")
            else:
                self.refuse("E008", path, "a float has no exact form; use int, str or Money")
        elif kind == "string" and node.get("format") in {"binary", "base64"}:
            self.refuse("E008", path, "bytes have no strict form; use str")
        elif kind == "array":
            if "prefixItems" in node:
                return node  # a tuple, refused above
            if not isinstance(node.get("items"), dict) or not node["items"]:
                self.refuse("E003", path, "a list must say what it holds")
            else:
                node["items"] = self.convert(node["items"], path)
        elif kind == "object" or "properties" in node:
            return self._object(node, path)
        elif kind is None and "enum" not in node:
            self.refuse("E008", path, "the schema names no type")
        return node

    def _object(self, node: dict[str, Any], path: str) -> dict[str, Json]:
        properties: dict[str, Any] = node.get("properties", {})
        if node.get("additionalProperties", False) is not False:
            self.refuse("E003", path, "free keys are not allowed; declare a pydantic model")
            return node
        if "properties" not in node:
            self.refuse("E003", path, "an object must declare its fields; use a pydantic model")
            return node
        required = node.get("required", [])
        for key, value in properties.items():
            inner = f"{path}.{key}" if path else key
            absent_is_null = is_nullable(value) and value.get("default", 0) is None
            if key not in required and not absent_is_null:
                self.refuse(
                    "E008", inner, "a nested field is required, or nullable with default None"
                )
            properties[key] = self.convert(value, inner)
        node["properties"] = properties
        node["required"] = list(properties)
        node["additionalProperties"] = False
        return node


def is_nullable(node: dict[str, Any]) -> bool:
    """Whether the schema node accepts null."""
    kind = node.get("type")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return any(is_nullable(item) for item in node.get("anyOf", node.get("oneOf", [])))


def strict_schema(
    schema: dict[str, Any], *, nullable: frozenset[str], descriptions: dict[str, str]
) -> tuple[dict[str, Json], tuple[Problem, ...]]:
    """Convert the schema of a parameter model.

    `nullable` names the top-level parameters whose default is not None: null stands for the
    default. `descriptions` fills in what the schema does not describe. Returns the strict schema
    and the problems; with problems the schema must not be used.
    """
    schema = copy.deepcopy(schema)
    defs = schema.pop("$defs", {})
    converter = _Converter(defs=copy.deepcopy(defs))
    properties: dict[str, Json] = {}
    for name, node in schema.get("properties", {}).items():
        if isinstance(node, dict) and name in descriptions:
            # The developer's words first, then what the type says about itself.
            node["description"] = f"{descriptions[name]} {node.get('description', '')}".strip()
        converted = converter.convert(node, name)
        if name in nullable:
            about = converted.pop("description", None)
            converted = {"anyOf": [converted, {"type": "null"}]}
            if about:
                converted["description"] = about
        properties[name] = converted
    strict: dict[str, Json] = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    strict_defs = {name: converter.convert(node, "") for name, node in defs.items()}
    used = _reachable(strict, strict_defs)
    if used:
        strict["$defs"] = {name: strict_defs[name] for name in sorted(used)}
    return strict, tuple(dict.fromkeys(converter.problems))


def _reachable(node: Any, defs: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            name = item["$ref"].removeprefix(_DEFS) if isinstance(item.get("$ref"), str) else None
            if name is not None and name not in found:
                found.add(name)
                waiting.append(defs[name])
            waiting.extend(item.values())
    return found
