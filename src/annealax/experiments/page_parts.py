"""What pages of one run and of several have in common."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from annealax.experiments._html import Html, breakable, picture, section, table, tag
from annealax.experiments._read import Picture
from annealax.experiments._run_files import Header, TableRow
from annealax.experiments.methods import METHODS
from annealax.experiments.registry import EXPERIMENTS
from annealax.experiments.settings import format_value

_KNOWN: Mapping[str, tuple[str, str]] = {
    "temperatures.png": (
        "The first two coordinates of the particles, along the ladder of temperatures.",
        "Scatter plots of the particles at temperatures from the start to the target",
    ),
    "marginals.png": (
        "Weighted marginals of the first coordinates, with exact draws where known.",
        "Weighted histograms of the first coordinates",
    ),
    "parameters.png": (
        "Posterior of the parameters in their own space.",
        "Histograms and intervals of the parameters",
    ),
    "intensity.png": (
        "The intensity: posterior mean with the observed points, and relative spread.",
        "Two maps: mean intensity with the points on it, and its relative spread",
    ),
    "digits.png": (
        "The image, and draws from prior and posterior, decoded.",
        "Two rows of small grey images: prior draws above, posterior draws below",
    ),
    "fields.png": (
        "Fields drawn at temperatures along the ladder.",
        "Lattice fields in red and blue, one column for each temperature",
    ),
    "magnetisation.png": (
        "The magnetisation, with the share of either sign.",
        "Histogram of the magnetisation, negative and positive in two colours",
    ),
    "pimh_trace.png": (
        "Particle MCMC: traces of log Z and of observables.",
        "Line plots over the iterations of the chains",
    ),
    "pimh_correlator.png": (
        "Particle MCMC: correlations in time.",
        "Zero-momentum correlator and effective mass with error bars",
    ),
    "pimh_magnetisation.png": (
        "Particle MCMC: the magnetisation of the configurations.",
        "Histogram of the magnetisation, negative and positive in two colours",
    ),
    "decoded.png": (
        "Test images, what encoder and decoder make of them, and draws from the prior.",
        "Three rows of small grey images",
    ),
    "compare.png": (
        "log Z against what was spent, a line for each repeat.",
        "Line plots of log Z for every method, in full and magnified",
    ),
}
_GENERAL = {"temperatures.png", "marginals.png"}
DRAWN_HERE = {"training.png"}
"""Pictures that the page draws itself, in its own colours."""


def method_label(name: str) -> str:
    """What to call a method."""
    direct = {"hmc": "HMC", "nuts": "NUTS", "sample": "automatic mode"}
    return METHODS[name].label if name in METHODS else direct.get(name, name)


def number_text(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals, or a question mark."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{value:.{digits}f}".replace("-", "−")


def estimate(row: TableRow) -> str:
    """Log Z and its error bar."""
    return (
        f"{number_text(row.log_normalizer)} ± {number_text(row.log_normalizer_stderr)}"
    )


def off_by(row: TableRow, truth: float | None) -> str:
    """Distance from the exact value in error bars."""
    value, error = row.log_normalizer, row.log_normalizer_stderr
    if truth is None or value is None or not error:
        return "?"
    return f"{(value - truth) / error:+.1f}\u00a0σ".replace("-", "−")


def shown(pictures: Mapping[str, Picture]) -> Iterator[Html]:
    """Pictures with what is known about them; those of the problem itself first."""
    ordered = sorted(pictures.items(), key=lambda entry: entry[0] in _GENERAL)
    for name, image in ordered:
        yield picture(image, *describe(name))


def describe(name: str) -> tuple[str, str]:
    """Caption and description of a picture."""
    if name in _KNOWN:
        return _KNOWN[name]
    plain = re.sub(r"[_-]+", " ", name.removesuffix(".png"))
    return f"{plain}.", f"Picture that the run drew: {plain}"


def command(header: Header) -> str:
    """The command that does the same again."""
    words = ["annealax", "run", header.name, "--method", header.method]
    if header.method == "sample":
        words = _sample_command(header)
    words += ["--seed", str(header.seed)]
    for key, value in header.overrides.items():
        words += ["--set", f"{key}={setting_text(value)}"]
    return shlex.join(words)


def _sample_command(header: Header) -> list[str]:
    """The automatic mode, of a function or of an experiment."""
    settings = header.settings
    if "shape" not in settings:
        words = ["annealax", "run", header.name, "--auto"]
    else:
        words = ["annealax", "sample", header.name]
        for key in ("shape", "support"):
            texts = str(settings.get(key, "")).split(", ")
            words += [part for text in texts if text for part in (f"--{key}", text)]
        if settings.get("flow", "auto") != "auto":
            words += ["--flow", str(settings["flow"])]
    if "budget" in settings:
        words += ["--budget", str(settings["budget"])]
    return words


def command_box(text: str) -> Html:
    """A command to copy; lines are broken between its words and not at hyphens."""
    words = [
        tag("span", shlex.quote(word), class_="word") for word in shlex.split(text)
    ]
    return tag("pre", tag("code", Html(" ".join(words))))


def setting_text(value: Any) -> str:
    """A setting as it is given on the command line."""
    return format_value(tuple(value) if isinstance(value, list) else value)


def again(header: Header) -> Html:
    """How to run it again."""
    version = header.versions.get("annealax", "?")
    return section(
        "Run it again",
        command_box(command(header)),
        tag(
            "p",
            f"With annealax {version} and the versions below, on the same kind of "
            "machine, it gives the same numbers; only times differ, and with them how "
            "many temperatures SMC gets for the same time.",
            class_="note",
        ),
    )


def settings_section(header: Header) -> Html:
    """All settings; those that were changed first."""
    cls = EXPERIMENTS.get(header.name)
    fields = {} if cls is None else cls.model_fields
    names = sorted(header.settings, key=lambda name: name not in header.overrides)
    rows = [
        [
            tag("strong", breakable(name))
            if name in header.overrides
            else breakable(name),
            breakable(setting_text(header.settings[name])),
            fields[name].description or "" if name in fields else "",
        ]
        for name in names
    ]
    view = table(
        ["setting", "value", "meaning"], rows, caption="Settings", numeric=False
    )
    note = "Bold: changed for this run." if header.overrides else "All as they come."
    return section(
        "Settings", tag("p", note, class_="note"), tag("div", view, class_="settings")
    )


def software(header: Header) -> Html:
    """Versions, devices, and what else is known about where it ran."""
    rows = [[name, str(value)] for name, value in header.versions.items()]
    rows.append(["devices", ", ".join(header.devices)])
    rows += [[key, text] for key, text in _flat(header.environment)]
    view = table(["", "version"], rows, caption="Software", numeric=False)
    return section("Software", tag("div", view, class_="settings"))


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key} ")
        else:
            entries = value if isinstance(value, list) else [value]
            yield f"{prefix}{key}", ", ".join(map(str, entries))
