"""HTML of templates. Whatever is put into one is escaped, and shown as what it is: no text of others moves a cursor,
turns the direction of reading, or becomes an element. Pure but for reading the templates once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from offloader.printable import printable

LONGEST = 20_000  # characters of one value: a key may have as many bytes as a message

FILES = {
    "pages.css": "text/css; charset=utf-8",
    "pages.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


class TextBlock(str):
    """Text of several lines, each of which is printable already."""

    __slots__ = ()


class Renderer:
    """Templates of `offloader.pages` and of `packages`, each in its folder `templates`.

    `shared`: what every template may use. Thread safe.
    """

    def __init__(self, *packages: str, shared: Mapping[str, Any] | None = None) -> None:
        loaders = [PackageLoader(package) for package in (*packages, __package__ or "offloader.pages")]
        self._environment = Environment(
            loader=ChoiceLoader(loaders),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= FILTERS
        self._environment.globals |= {"url": url, "brand": "offloader", **(shared or {})}

    def render(self, template: str, **values: Any) -> bytes:
        """The page. Raises UndefinedError for a value that the template needs and nobody gave: a defect."""
        return self._environment.get_template(template).render(values).encode()


def static_file(name: str) -> bytes:
    """One of `FILES`."""
    return (resources.files("offloader.pages") / "static" / name).read_bytes()


def text_block(text: str | bytes) -> TextBlock:
    """Keeps line ends; whatever else would not print is escaped."""
    shown = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    lines = ("\t".join(map(printable, line.split("\t"))) for line in shown.split("\n"))
    return TextBlock("\n".join(lines))


def url(path: str, /, **query: object) -> str:
    """An address of this site. What is None is left out."""
    given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
    text = urlencode(given, quote_via=quote, errors="surrogatepass")
    return f"{path}?{text}" if text else path


def bytes_text(size: float) -> str:
    """A size for people: 1.5 GiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} PiB"


def count_text(number: int) -> str:
    """A number for people: 1,234,567."""
    return f"{number:,}"


def time_text(ms: int | None) -> Markup | str:
    """A time in UTC, as an element that scripts and screen readers understand; a dash where there is none."""
    if ms is None:
        return "\N{EN DASH}"
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(ms)
    machine = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{}</time>').format(machine, moment.strftime("%Y-%m-%d %H:%M:%S"))


def duration_text(ms: float) -> str:
    """The two largest units: 2 d 5 h; 10 min."""
    seconds = int(ms // 1000)
    words: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, seconds = divmod(seconds, length)
        if words:
            return " ".join((*words, f"{number} {unit}")) if number else words[0]
        if number:
            words.append(f"{number} {unit}")
    return words[0] if words else "0 s"


def as_it_is(value: object) -> Markup:
    """For a hidden field, which the browser sends back: what does not print is part of a name, too."""
    return escape(str(value).encode("utf-8", "replace").decode())


FILTERS: Mapping[str, Callable[..., Any]] = {
    "as_it_is": as_it_is,
    "block": text_block,
    "bytes": bytes_text,
    "count": count_text,
    "duration": duration_text,
    "time": time_text,
}


def _shown(value: Any) -> Any:
    """Of each value that a template puts out. Markup and blocks have been looked after."""
    if isinstance(value, Markup | TextBlock) or not isinstance(value, str | bytes):
        return value
    shown, left_out = printable(value[:LONGEST]), len(value) - LONGEST
    return shown if left_out <= 0 else f"{shown}\N{HORIZONTAL ELLIPSIS} ({left_out:,} more)"
