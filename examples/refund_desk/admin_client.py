"""Deciding in Django admin as a person's browser does: sign in, open the page, post its form."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin


class AdminError(RuntimeError):
    """A page did not do what a person would expect of it."""


@dataclass(slots=True)
class Form:
    """One HTML form. `buttons` are its (name, value) submit buttons, in order."""

    action: str = ""
    method: str = "get"
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)


class _FormReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open = False
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
            self._open = True
        if not self._open:
            return
        form, name, kind = self.forms[-1], given.get("name", ""), given.get("type", "").lower()
        if tag == "button" or (tag == "input" and kind == "submit"):
            if kind in ("", "submit"):
                form.buttons.append((name, given.get("value", "")))
        elif name and tag == "input":
            if kind not in ("checkbox", "radio") or "checked" in given:
                form.fields[name] = given.get("value", "")
        elif name and tag == "textarea":
            form.fields[name] = ""
            self._area = name

    def handle_data(self, data: str) -> None:
        if self._area:
            self.forms[-1].fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = False
        elif tag == "textarea":
            self._area = ""


def read_forms(html: str) -> list[Form]:
    """Every form of a page."""
    reader = _FormReader()
    reader.feed(html)
    return reader.forms


class AdminSession:
    """A signed-in browser session at the console of `url`."""

    def __init__(self, *, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def sign_in(self, *, user: str, password: str) -> None:
        """Through the login form of the admin. Raises AdminError."""
        page = f"{self._url}/admin/login/?next=/admin/"
        login = _form_with(self.read(page), "password", where=page)
        answer = self._post(page, login, {"username": user, "password": password})
        if any("password" in form.fields for form in read_forms(answer)):
            raise AdminError("the console did not accept the user and password")

    def decide(self, *, page: str, decision: str, reason: str = "") -> str:
        """Post the decision form of a review page; the page that answers. Raises AdminError."""
        html = self.read(page)
        button = ("decision", decision)
        forms = [
            form
            for form in read_forms(html)
            if button in form.buttons or form.fields.get("decision") == decision
        ]
        if not forms:
            raise AdminError(f"{page} offers no way to {decision.lower()}")
        fields = {"decision": decision}
        if reason:
            fields["reason"] = reason
        return self._post(page, forms[0], fields)

    def read(self, page: str) -> str:
        """GET a page. Raises AdminError when it is not answered with 200."""
        return self._open(urllib.request.Request(page))  # noqa: S310

    def _post(self, page: str, form: Form, fields: dict[str, str]) -> str:
        data = urlencode({**form.fields, **fields}).encode()
        target = urljoin(page, form.action) if form.action else page
        request = urllib.request.Request(target, data, {"Referer": page})  # noqa: S310
        return self._open(request)

    def _open(self, request: urllib.request.Request) -> str:
        try:
            with self._opener.open(request, timeout=20) as reply:
                text: str = reply.read().decode()
                return text
        except urllib.error.HTTPError as error:
            raise AdminError(f"{request.full_url} answered {error.code}") from None


def _form_with(html: str, name: str, *, where: str) -> Form:
    for form in read_forms(html):
        if name in form.fields:
            return form
    raise AdminError(f"{where} has no form with a field {name!r}")
