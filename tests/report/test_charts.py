"""Charts: limits, marks where they belong, and SVG that fits into a page."""

import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import tests_run_folder as made_up
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from annealax.report import charts
from annealax.report.read import Draws, Ladder, Passes, named_draws, read


def axes_of(panel):
    """The axes of a panel that is drawn alone, main ones first."""
    return charts.alone(panel).axes


def ladder(work, **changes):
    count = len(work)
    parts = {
        "betas": np.linspace(0, 1, count + 1) ** 2,
        "work": np.array([work], float),
        "ess": np.full((1, count), 0.5),
        "resampled": np.arange(count) == 1,
        "acceptance": np.full((1, count), 0.75),
    }
    return Ladder(**parts | changes)


# What is drawn.


def test_transitions_are_labelled_with_beta():
    (axis,) = axes_of(charts.ladder_panels(ladder([1, 2, 3, 4]))[0])
    labels = [label.get_text() for label in axis.get_xticklabels()]
    assert labels == ["0.062", "0.25", "0.56", "1"]
    assert "β" in axis.get_xlabel()
    assert [bar.get_height() for bar in axis.patches] == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [1, 2, 5, 8, 16, 64])
def test_labels_are_as_far_apart_from_one_to_the_next(count):
    axis = Figure().subplots()
    charts.ladder_panels(ladder(np.ones(count)))[0].draw(axis)
    ticks = axis.get_xticks()
    assert ticks[-1] == count
    assert len(set(np.diff(ticks))) <= 1
    assert min(count, 2) <= len(ticks) <= 6


@pytest.mark.parametrize("far", [1e16, np.inf, np.nan])
def test_an_absurd_transition_does_not_set_the_axis(far):
    panel = charts.ladder_panels(ladder([0.5, far, 0.25]))[0]
    (axis,) = axes_of(panel)
    assert axis.get_ylim() == (0, pytest.approx(1.15 * 0.5))  # bars can be read
    assert "more than 10" in panel.caption
    (marks,) = axis.lines
    np.testing.assert_array_equal(marks.get_xdata(), [2])


def test_resampling_is_counted():
    _, ess, acceptance = charts.ladder_panels(ladder([1, 1, 1]))
    assert "Resampled once in 3 transitions" in ess.caption
    many = ladder([1, 1, 1], ess=np.full((4, 3), 0.5), step_sizes=np.ones(3))
    _, ess, acceptance = charts.ladder_panels(many)
    assert "line for each replicate" in ess.caption
    assert len(axes_of(acceptance)) == 2  # acceptance and step size


def test_passes_and_the_answer():
    passes = Passes(np.array([1.0, 2.0]), np.array([0.1, 0.2]), 1.5, 0.05, 1.25)
    panel = charts.passes_panel(passes, pooled=True)
    assert "all of them pooled" in panel.caption
    (axis,) = axes_of(panel)
    low, high = axis.get_ylim()
    assert low < 0.9
    assert high > 2.2
    levels = [line.get_ydata()[0] for line in axis.lines if len(line.get_xdata()) == 2]
    assert 1.5 in levels
    assert 1.25 in levels
    run = charts.passes_panel(passes, pooled=False)
    assert "log Z of each pass" in run.title
    assert "all of them pooled" in run.caption


def test_weights_in_words():
    weights = np.array([0.5, 0.3, 0.2, 0.0])
    panel = charts.weights_panel(weights)
    assert panel.caption.startswith("Half of the weight is on 25% of the draws, 50.00%")
    assert "1 have weight zero" in panel.caption


def test_marginals_are_weighted():
    values = np.repeat([0.0, 1.0], 50)
    weights = np.repeat([0.9, 0.1], 50) / 50
    axis = Figure().subplots()
    charts.draw_marginal(axis, named_draws({"a": values}, weights), 0)
    (steps,) = axis.patches
    heights, edges, _ = steps.get_data()
    mass = heights * np.diff(edges)
    assert mass[edges[:-1] < 0.5].sum() / mass.sum() == pytest.approx(0.9, abs=1e-6)


def test_a_corner_has_marginals_and_pairs():
    rng = np.random.default_rng(0)
    draws = named_draws({k: rng.normal(size=50) for k in "abc"}, np.ones(50))
    figure = charts.corner(draws)
    shown = [axis for axis in figure.axes if axis.axison]
    assert len(shown) == 6
    labels = {axis.get_xlabel() for axis in shown} - {""}
    assert labels == {"a", "b", "c"}
    shown_labels = {a.get_xlabel() for a in shown if a.xaxis.label.get_visible()}
    assert shown_labels == labels
    assert sum(axis.xaxis.label.get_visible() for axis in shown) == 3  # at the edge


def test_the_prior_lies_beside_the_posterior():
    """As high as its density, though its bins are wider than those of the draws."""
    rng = np.random.default_rng(0)
    values, prior = rng.normal(size=(2000, 2)), rng.uniform(-20, 20, size=(9000, 2))
    draws = named_draws({"": values}, np.ones(2000), prior={"": prior})
    axis = Figure().subplots()
    charts.draw_marginal(axis, draws, 0)
    filled, outline = axis.patches
    assert to_hex(outline.get_edgecolor()) == charts.GOLD
    mass, edges, _ = filled.get_data()
    heights, _, _ = outline.get_data()
    width = edges[1] - edges[0]
    np.testing.assert_allclose(heights / width, 1 / 40, rtol=0.25)
    assert mass.sum() == pytest.approx(1, abs=0.01)
    words, _ = charts.main_draws(draws)
    assert words.endswith("Gold: the prior.")
    pair = charts.corner(draws).axes[2]
    assert [len(line.get_xdata()) for line in pair.lines] == [400, 800]


def test_lines_of_a_pair_hold_half_and_nine_tenths():
    """Of a normal: ellipses whose radius is known, whichever way weights are spread."""
    rng = np.random.default_rng(0)
    wide = 1.5 * rng.normal(size=(60_000, 2))
    logs = 0.5 * np.sum(wide**2, axis=1) * (1 / 1.5**2 - 1)
    weights = np.exp(logs - logs.max())
    axis = charts.corner(named_draws({"": wide}, weights)).axes[2]
    (lines,) = axis.collections
    radii = [np.hypot(*path.vertices.T).mean() for path in lines.get_paths()]
    exact = np.sqrt(-2 * np.log([0.1, 0.5]))
    np.testing.assert_allclose(radii, exact, rtol=0.06)


@pytest.mark.parametrize(("count", "heaviest"), [(60, 1), (1000, 30)])
def test_few_draws_and_heavy_ones_have_no_lines(count, heaviest):
    rng = np.random.default_rng(0)
    weights = np.ones(count)
    weights[0] = heaviest  # effectively 500 draws of 1000, but 3 % are one of them
    draws = named_draws({"": rng.normal(size=(count, 2))}, weights)
    assert not charts.corner(draws).axes[2].collections
    assert "Lines" not in charts.main_draws(draws)[0]


def test_marginals_show_quantiles_of_the_weighted_draws():
    axis = Figure().subplots()
    values = np.arange(1000.0)
    draws = named_draws({"a": values}, np.where(values < 500, 3.0, 1.0))
    charts.draw_marginal(axis, draws, 0)
    places = [line.get_xdata()[0] for line in axis.lines]
    np.testing.assert_allclose(places, [2000 / 60, 2000 / 6, 900], atol=1)


def test_a_corner_shows_at_most_eight_parameters():
    rng = np.random.default_rng(0)
    values = {"theta": rng.normal(size=(50, 12)), "mu": rng.normal(size=50)}
    words, shown = charts.main_draws(named_draws(values, np.ones(50)))
    assert len(shown.names) == 8
    assert "mu" in shown.names  # single numbers before entries of a list
    assert "8 of 13 parameters" in words
    (panel,) = charts.posterior_panels(named_draws(values, np.ones(50)))
    assert panel.title == "theta"  # and all of it here


def test_main_directions_of_many_are_those_of_largest_variance():
    rng = np.random.default_rng(0)
    direction = np.ones(50) / np.sqrt(50)
    x = 0.1 * rng.normal(size=(400, 50)) + 3 * rng.normal(size=(400, 1)) * direction
    words, shown = charts.main_draws(named_draws({"": x}, np.ones(400)))
    assert abs(np.corrcoef(shown.values[:, 0], x @ direction)[0, 1]) > 0.999
    assert shown.names[0] == "direction 1 (95%)"
    assert "principal components" in words


def test_every_kind_of_folder_has_charts(tmp_path):
    made_up.write(tmp_path / "run")
    np.savez(tmp_path / "run" / "pimh.npz", **made_up.chain_arrays(2, 40))
    run = read(tmp_path / "run")
    found = [
        *charts.training_panels(run),
        *charts.chain_panels(run.chain),
        *charts.comparison_panels(read(made_up.write_comparison(tmp_path / "c"))),
        *charts.decoder_panels(read(made_up.write_decoder(tmp_path / "d"))),
    ]
    titles = [panel.title for panel in found]
    assert titles == [
        *("log Z of each training pass", "Loss", "Lowest ESS of each pass"),
        *("Trace of log Z", "Trace of energy", "Zero-momentum correlator"),
        *("Effective mass", "Magnetisation", "All of it", "Magnified"),
        "Evidence lower bound of each batch",
    ]
    assert len(charts.compose(found).axes) == 12  # three in a row


def test_magnetisation_has_two_colours():
    values, shares = np.array([-0.2, -0.1, 0.3]), np.array([0.25, 0.25, 0.5])
    panel = charts.magnetisation_panel(values, shares, 0.5, 0.01)
    assert panel.caption == "Positive: 0.500 ± 0.010 (exact: 0.5 by symmetry)."
    (axis,) = axes_of(panel)
    blue, orange = axis.patches
    assert to_hex(blue.get_facecolor()) == charts.BLUE
    assert blue.get_data()[0].sum() == pytest.approx(0.5)
    assert to_hex(orange.get_facecolor()) == charts.ORANGE


def test_an_answer_in_memory_is_drawn():
    """What `Sample.plot` shows, of parameters in the user's order."""
    rng = np.random.default_rng(0)
    count, steps = 200, 5
    shown = {"y": rng.normal(size=count), "a": rng.normal(size=(count, 2))}
    lists = {
        name: np.full((4, steps), value)
        for name, value in (("free_energy", 2.0), ("log_ratio", -1.0), ("ess", 25.0))
    }
    lists |= {"resampled": np.zeros((4, steps)), "acceptance_rate": lists["ess"] / 50}
    sample = SimpleNamespace(
        space=SimpleNamespace(named=True),
        values=shown,
        prior_draws=lambda: {name: 3 * value for name, value in shown.items()},
        weights=np.full(count, 1 / count),
        steps=SimpleNamespace(**lists),
        betas=np.linspace(0, 1, steps + 1),
        step_sizes=np.ones(steps),
        num_particles=50,
        replicate_log_normalizers=np.arange(4.0),
        replicate_stderrs=np.full(4, 0.5),
        log_normalizer=1.5,
        log_normalizer_stderr=0.25,
        warnings=lambda: ["one"],
    )
    figure = charts.draw_sample(sample)
    assert figure.get_suptitle() == "log Z = 1.50 ± 0.25   (1 warning)"
    titles = [axis.get_title("left") for axis in figure.axes]
    for title in ("log Z of each replicate", "How hard transitions are", "Weights"):
        assert title in titles
    pair = figure.axes[titles.index("Draws")]
    assert (pair.get_xlabel(), pair.get_ylabel()) == ("y", "a[0]")
    assert titles[titles.index("Draws") + 1 :][:3] == ["y", "a[0]", "a[1]"]


# SVG.


def svg_of(panel, name="c1"):
    return charts.svg(charts.alone(panel), name, 'what "it" shows & <more>')


def test_a_chart_takes_the_colours_of_the_page():
    text = svg_of(charts.ladder_panels(ladder([1, 2]))[1])
    assert "var(--blue)" in text
    assert "var(--faint)" in text
    assert not re.search("#[0-9a-f]{6}", text)
    assert "font-family" not in text
    assert "<style" not in text
    assert "effective" not in text.lower()  # its title is the page's


def test_identifiers_are_the_charts_own():
    panel = charts.weights_panel(np.ones(5))
    first, second = (svg_of(panel, name) for name in ("c1", "c2"))
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]
    referred = set(re.findall(r'(?:href="|url\()#([^")]*)', first))
    assert referred <= ids[0]


def test_words_are_escaped():
    passes = np.array([0.0, 1.0])
    text = svg_of(charts.strips_panel("title", {"<b>a & b $\\x$": passes}, None))
    assert "<b>" not in text
    assert "&lt;b&gt;a &amp; b $\\x$" in text
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'what "it" shows & <more>'


def test_the_same_numbers_give_the_same_chart():
    panel = charts.weights_panel(np.arange(5.0))
    assert svg_of(panel) == svg_of(panel)


def test_a_page_can_tell_the_numbers_of_a_chart():
    panel = charts.ladder_panels(ladder([1, 2]))[1]
    figure = charts.alone(panel)
    root = ElementTree.fromstring(charts.svg(figure, "c1", "words"))
    (found,) = json.loads(root.get("data-axes"))
    assert found["x"]["words"] == ["0.25", "1"]  # inverse temperatures, not places
    assert found["x"]["name"].startswith("inverse temperature")
    assert found["y"]["ends"] == [0, 104]
    left, top, width, height = found["box"]
    box = figure.axes[0].get_window_extent()
    assert left * figure.bbox.width == pytest.approx(box.x0, abs=0.1)
    assert (1 - top) * figure.bbox.height == pytest.approx(box.y1, abs=0.1)
    assert width * figure.bbox.width == pytest.approx(box.width, abs=0.1)
    assert height * figure.bbox.height == pytest.approx(box.height, abs=0.1)


# Limits.


@pytest.mark.parametrize("values", [[], [np.nan], [3.0], [0.0, 0.0], [-1, 5, np.inf]])
def test_limits_are_never_empty(values):
    low, high = charts.limits(np.array(values))
    assert low < high
    finite = [value for value in values if np.isfinite(value)]
    assert all(low < value < high for value in finite)


def test_pictures_show_the_bulk_of_heavy_tails():
    weights = np.full(10_001, 1 / 10_001)
    levels = np.linspace(1e-4, 1 - 1e-4, 10_001)
    low, high = charts.window(stats.norm.ppf(levels), weights)
    np.testing.assert_allclose([low, high], [-3.7, 3.7], atol=0.05)
    low, high = charts.window(stats.cauchy.ppf(levels), weights)
    assert -45 < low < -20
    assert 20 < high < 45


def test_a_window_holds_exact_draws_too():
    low, high = charts.window(np.zeros(9), np.ones(9) / 9, np.linspace(-5, 7, 100))
    assert low < -5
    assert high > 7


def test_long_series_are_thinned_out():
    x, y = charts.thin_out(np.arange(10_000.0), np.ones(10_000))
    assert len(x) == len(y) <= 600
    assert x[0] < 20
    assert x[-1] > 9900


def test_panels_are_spread_over_the_ladder():
    assert charts.spaced(2, 5) == [0, 1, 2]
    assert charts.spaced(16, 5) == [0, 4, 8, 12, 16]
    assert charts.spaced(1, 5) == [0, 1]


def test_exact_draws_are_outlined():
    draws = Draws(("a",), np.zeros((9, 1)), np.ones(9) / 9, np.ones((9, 1)))
    axis = Figure().subplots()
    charts.draw_marginal(axis, draws, 0)
    filled, outline = axis.patches
    assert filled.get_fill()
    assert not outline.get_fill()
