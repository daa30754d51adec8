"""A page as its parsed elements: what a browser would build, not what the text looks like."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Element:
    """One start tag with its attributes and the text inside it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Form:
    """One form: its fields as they would be sent, and its submit buttons."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[Element] = field(default_factory=list)
    required: set[str] = field(default_factory=set)


class Page(HTMLParser):
    """Parses HTML into `elements` and `forms`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.forms: list[Form] = []
        self._open: list[Element] = []
        self._form: Form | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"td", "th", "li", "dt", "dd", "p", "div", "details", "pre"}:
            self.handle_data(" ")  # blocks do not run into each other
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in {"input", "link", "meta", "br", "img", "hr", "path"}:
            self._open.append(element)
        if tag == "form":
            self._form = Form(element.attributes.get("action", ""), element.attributes["method"])
            self.forms.append(self._form)
        elif self._form is not None and ("name" in element.attributes or tag == "button"):
            self._field(self._form, element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        depth = len(self._open)
        self.handle_starttag(tag, attrs)
        del self._open[depth:]

    def _field(self, form: Form, element: Element) -> None:
        if element.tag == "button":
            form.buttons.append(element)
            return
        name = element.attributes["name"]
        form.fields[name] = element.attributes.get("value", "")
        if "required" in element.attributes:
            form.required.add(name)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass
        if tag == "form":
            self._form = None

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def form_of(self, decision: str) -> Form:
        """The form whose button says this decision."""
        (form,) = [
            form
            for form in self.forms
            if any(button.attributes.get("value") == decision for button in form.buttons)
        ]
        return form

    def text_of(self, tag: str) -> list[str]:
        """The text of every element with this tag, spaces joined."""
        return [" ".join(e.text.split()) for e in self.elements if e.tag == tag]
