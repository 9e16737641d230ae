"""Pieces of HTML and SVG that escape what they are given."""

import base64
import html
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import annealax
from annealax.experiments._read import Picture

GENERATOR = '<meta name="generator" content="annealax'
"""How every page of ours can be told."""

_VOID = {"meta", "img", "br", "hr"}
# Nothing may be fetched, nothing may run: what the page needs is inside it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Html(str):
    """Text that is HTML already, and is not escaped again."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element; children that are not `Html` are escaped, as attributes are.

    An attribute of None is left out; a trailing underscore is for Python's keywords,
    other underscores are hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Any]) -> Html:
    """Children one after the other; None is nothing."""
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(str(child))
            for child in children
            if child is not None
        )
    )


def breakable(text: str) -> Html:
    """Text that may be broken after underscores and commas, and not inside words."""
    return Html(html.escape(text).replace("_", "_<wbr>").replace(",", ",<wbr>"))


def section(title: str, *children: Any) -> Html:
    """A section with its heading."""
    return tag("section", tag("h2", title), *children)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    caption: str,
    numeric: bool = True,
    strong: int | None = None,
) -> Html:
    """A table that scrolls in its own box where it is too wide.

    Args:
        headers: Of the columns.
        rows: The cells; the first of a row is its heading.
        caption: What the table shows, for those who hear it.
        numeric: Whether the cells after the first are numbers.
        strong: Index of a row that matters most.
    """
    kind = "number" if numeric else None
    head = [
        tag("th", text, scope="col", class_=kind if index else None)
        for index, text in enumerate(headers)
    ]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", cell, class_=kind) for cell in row[1:]),
            class_="strong" if index == strong else None,
        )
        for index, row in enumerate(rows)
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", *head)),
            tag("tbody", *body),
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex="0",
    )


def picture(image: Picture, title: str, alt: str) -> Html:
    """A picture inside the page, on a white card; wide ones scroll on a phone."""
    data = base64.b64encode(image.data).decode()
    wide = image.width > 2 * image.height and image.width > 1000
    region = {"role": "region", "aria_label": title, "tabindex": "0"} if wide else {}
    return tag(
        "figure",
        tag(
            "div",
            tag(
                "img",
                src=f"data:image/png;base64,{data}",
                alt=alt,
                width=round(image.width / 1.5),
                height=round(image.height / 1.5),
            ),
            class_="card scroll wide" if wide else "card scroll",
            **region,
        ),
        tag("figcaption", title),
        class_="picture",
    )


def page(title: str, *children: Any) -> Html:
    """A whole page."""
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(GENERATOR + f' {html.escape(annealax.__version__)}">'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("title", title),
        Html(f"<style>\n{style}</style>"),
    )
    footer = tag("footer", f"Written by annealax {annealax.__version__}.")
    body = tag("body", tag("main", *children), footer)
    return Html(f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n')
