"""Pages in a real browser: nothing is missing, nothing overflows, on a phone too."""

import numpy as np
import pytest
import tests_chromium
import tests_run_folder as made_up

from annealax.report.page import render, render_runs
from annealax.report.read import read

pytestmark = pytest.mark.skipif(
    tests_chromium.find() is None,
    reason=f"no browser found; looked for {', '.join(tests_chromium.NAMES)}",
)
LONG = "a_setting_with_a_name_that_is_longer_than_most_of_them_are"
WIDE = {"fields.png": (16, 4), "temperatures.png": (18, 5), "digits.png": (5, 2)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = tests_chromium.Browser(
        tests_chromium.find(), tmp_path_factory.mktemp("profile")
    )
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of one run and of several, with all that could be too wide."""
    folder = tmp_path_factory.mktemp("pages")
    runs = []
    for index in range(4):
        made_up.write(
            folder / f"a-rather-long-name-of-a-run-folder-{index}",
            overrides={LONG: list(range(40 + index)), "csv": "/a" * 90},
            rows=[
                made_up.row(
                    "SMC, same cost", [1.0, 2.0], warnings=[made_up.doubt("x" * 90)]
                )
            ],
            numbers=made_up.arrays(shape=(8, 8) if index else (3,), seed=index),
            pictures=[],
        )
        run = folder / f"a-rather-long-name-of-a-run-folder-{index}"
        for name, size in WIDE.items():
            (run / name).write_bytes(made_up.png(name, size))
        np.savez(run / "pimh.npz", **made_up.chain_arrays())
        runs.append(read(run))
    others = {
        "sample": made_up.write_sample,
        "comparison": made_up.write_comparison,
        "decoder": made_up.write_decoder,
    }
    made = {"run": render(runs[1]), "several": render_runs(runs)}
    made |= {name: render(read(write(folder / name))) for name, write in others.items()}
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["run", "several", "sample", "comparison", "decoder"])
def test_page(browser, pages, name, width, scheme):
    address = (pages / f"{name}.html").as_uri()
    browser.open(address, width=width, scheme=scheme)
    assert browser.complaints() == []
    assert [u for u in browser.requests() if not u.startswith("data:")] == [address]
    images = "[...document.images]"
    expected = {"several": 12, "run": 3}.get(name, 0)
    assert browser.evaluate(f"{images}.length") == expected
    assert browser.evaluate(f"{images}.every(i => i.complete && i.naturalWidth > 0)")
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider than the page must be inside a box that scrolls.
    loose = browser.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') &&"
        "!e.closest('.unseen') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert loose == []


def test_charts_tell_their_numbers_and_open(browser, pages):
    browser.open((pages / "sample.html").as_uri(), width=1280)
    chart = "document.querySelector('.corner svg.chart')"
    browser.evaluate(f"{chart}.scrollIntoView()")
    box = browser.evaluate(f"{chart}.getBoundingClientRect().toJSON()")
    (axes, *_) = browser.evaluate(f"{chart}.axes")
    left, top, width, height = axes["box"]
    place = {
        "x": box["x"] + box["width"] * (left + width / 4),
        "y": box["y"] + box["height"] * (top + height / 2),
    }
    move = {"type": "mouseMoved", **place}
    browser.call("Input.dispatchMouseEvent", **move)
    reading = "document.querySelector('.reading')"
    name, value = browser.evaluate(f"{reading}.textContent").split(": ")
    low, high = axes["x"]["ends"]
    assert name == "x"  # the first parameter, in the order of the user
    assert abs(float(value) - (low + (high - low) / 4)) < 0.02 * (high - low)

    for kind in ("mousePressed", "mouseReleased"):
        press = {"button": "left", "clickCount": 1, **place, "type": kind}
        browser.call("Input.dispatchMouseEvent", **press)
    large = "document.querySelector('dialog[open] svg')"
    whole = browser.evaluate(f"{large}.getAttribute('viewBox')").split()
    middle = {"type": "mouseWheel", "x": 640, "y": 450, "deltaX": 0, "deltaY": -100}
    browser.call("Input.dispatchMouseEvent", **middle)
    zoomed = browser.evaluate(f"{large}.getAttribute('viewBox')").split()
    assert float(zoomed[2]) == pytest.approx(float(whole[2]) / 1.2)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="0", text="0")
    assert browser.evaluate(f"{large}.getAttribute('viewBox')").split() == whole
    # A phone has neither a wheel nor keys.
    button = "document.querySelector('dialog [aria-label=\"{}\"]').click()"
    browser.evaluate(button.format("Zoom in"))
    zoomed = browser.evaluate(f"{large}.getAttribute('viewBox')").split()
    assert float(zoomed[2]) == pytest.approx(float(whole[2]) / 1.4)
    browser.evaluate(button.format("All of it"))
    assert browser.evaluate(f"{large}.getAttribute('viewBox')").split() == whole
    browser.evaluate(button.format("Close"))
    browser.evaluate("new Promise(requestAnimationFrame)")  # until it has closed
    assert browser.evaluate("document.querySelector('dialog')") is None
    assert browser.complaints() == []


def test_dark_pages_are_dark_and_can_be_read(browser, pages):
    """Contrast of text with its background, by the formula of WCAG 2."""
    for scheme in ("light", "dark"):
        browser.open((pages / "run.html").as_uri(), scheme=scheme)
        colours = {
            selector: browser.evaluate(
                f"getComputedStyle(document.querySelector('{selector}')).{kind}"
            )
            for selector, kind in (
                ("body", "backgroundColor"),
                ("h1", "color"),
                (".note", "color"),
                (".chart text", "fill"),
            )
        }
        ground = luminance(colours.pop("body"))
        assert (ground < 0.1) == (scheme == "dark")
        for colour in colours.values():
            bright, dim = sorted([luminance(colour), ground], reverse=True)
            assert (bright + 0.05) / (dim + 0.05) > 4.5


def luminance(colour):
    numbers = colour.removeprefix("rgb(").removesuffix(")").split(",")
    values = np.array([float(number) / 255 for number in numbers])
    linear = np.where(values < 0.04, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
