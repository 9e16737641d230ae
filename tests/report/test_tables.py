"""The table and the words under it: right for winners and losers alike."""

import io

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from scipy import stats

import annealax as ax
from annealax.experiments import pictures, report
from annealax.experiments._numbers import count_text
from annealax.experiments._style import spaced
from annealax.experiments.evaluate import Evaluation
from annealax.experiments.problems.bimodal import Bimodal
from annealax.experiments.run import Outcome


def evaluation(label, errors, *, seconds=1.0, stderr=0.1, truth=0.0, work=(2, 2)):
    """Passes that missed by `errors`, with everything else made up."""
    count = len(work)
    settings = Bimodal(num_particles=4, num_transitions=count, ladder_power=1.0)
    errors = np.asarray(errors)
    particles = ax.Particles.uniform(jnp.zeros((4, 2)), jnp.zeros(4))
    steps = ax.StepInfo(*(jnp.ones(count) for _ in ax.StepInfo._fields))
    steps = steps._replace(free_energy=jnp.asarray(work, float) - steps.log_ratio)
    return Evaluation(
        label=label,
        sampler=settings.sampler(),
        flows=None,
        result=ax.Result(particles, steps),
        log_normalizers=truth + errors,
        stderrs=np.full(len(errors), stderr),
        ess=np.full(len(errors), 0.5),
        lowest_ess=np.full(len(errors), 0.25),
        seconds=seconds,
    )


def outcome(*evaluations, truth=0.0):
    return Outcome("made-up", Bimodal(), "craft", 7, truth, None, evaluations)


def text(result):
    console = Console(width=110, file=io.StringIO(), record=True)
    report.show(console, result)
    return console.export_text()


SMALL, LARGE = 0.01 * np.tile([1, -1], 5), 0.2 * np.tile([1, -1], 5)


def test_a_ladder_is_proposed_where_one_transition_is_hard():
    hard = outcome(evaluation("CRAFT", SMALL, work=(0.25, 0.25, 0.25, 4.0)))
    lines = [line for line in report.remarks(hard) if "ladder" in line]
    assert len(lines) == 1
    assert "from 0.75 to 1 loses 4.0 nats, the median one 0.2" in lines[0]
    betas = [float(beta) for beta in lines[0].split("ladder=")[1].split(",")]
    # Roots of the work: 1/2, 1/2, 1/2 and 2, to be cut into four times 7/8.
    np.testing.assert_allclose(betas, [0, 0.4375, 0.78125, 0.890625, 1], atol=0.01)
    even = outcome(evaluation("CRAFT", SMALL, work=(2.0, 3.0, 4.0, 2.0)))
    assert not [line for line in report.remarks(even) if "ladder" in line]
    broken = outcome(evaluation("CRAFT", SMALL, work=(0.1, np.nan, 0.1, 0.1)))
    assert not [line for line in report.remarks(broken) if "ladder" in line]
    easy = outcome(evaluation("CRAFT", SMALL, work=(0.01, 0.01, 0.01, 0.9)))
    assert not [line for line in report.remarks(easy) if "ladder" in line]


def test_the_verdict_follows_the_errors():
    ours, theirs = evaluation("CRAFT", SMALL), evaluation("SMC", LARGE)
    assert "CRAFT beats SMC: 4e+02 times" in text(outcome(ours, theirs))
    ours, theirs = evaluation("CRAFT", LARGE), evaluation("SMC", SMALL)
    assert "SMC beats CRAFT: 4e+02 times" in text(outcome(ours, theirs))
    ours, theirs = evaluation("CRAFT", LARGE), evaluation("SMC", 1.2 * LARGE)
    assert "No clear winner" in text(outcome(ours, theirs))


def test_a_slower_pass_counts_against_a_method():
    ours, theirs = evaluation("CRAFT", SMALL, seconds=4000.0), evaluation("SMC", LARGE)
    assert "SMC beats CRAFT: 10 times" in text(outcome(ours, theirs))


def test_a_bias_counts_as_error_though_the_spread_is_small():
    biased = evaluation("CRAFT", -1.2 + 0.001 * SMALL)
    assert biased.spread < 1e-3
    assert "SMC beats CRAFT" in text(outcome(biased, evaluation("SMC", LARGE)))


def test_the_table_shows_truth_mean_and_spread():
    shown = text(outcome(evaluation("CRAFT", SMALL, truth=2.5), truth=2.5))
    assert "exact" in shown
    assert shown.count("2.5000") == 3  # exact twice, and the mean
    assert f"{np.std(SMALL, ddof=1):.4f}" in shown
    assert "25%" in shown
    assert "50%" in shown


def test_unknown_truth():
    shown = text(outcome(evaluation("CRAFT", SMALL), truth=None))
    assert not any(line.lstrip().startswith("exact") for line in shown.splitlines())
    assert evaluation("CRAFT", SMALL).squared_error(None) == pytest.approx(
        np.var(SMALL, ddof=1)
    )


def test_off_by_is_in_error_bars_of_the_pass():
    row = evaluation("CRAFT", SMALL)
    value = float(row.result.log_normalizer)
    error = float(row.result.log_normalizer_stderr)
    cells = list(report._cells(row, value + 2 * error))
    assert cells[2:4] == [f"{value:.4f} ± {error:.4f}", "-2.0 σ"]
    assert list(report._cells(row, None))[3] == "?"


def test_passes_that_disagree_with_their_error_bars_are_a_warning():
    def is_warned(row):
        return any("trust the spread" in message for message in row.warnings())

    assert is_warned(evaluation("SMC", LARGE, stderr=0.05))
    assert not is_warned(evaluation("SMC", LARGE, stderr=0.15))


@pytest.mark.parametrize("count", [4, 10, 20, 50])
def test_chance_ratio_is_the_quantile_of_f(count):
    exact = stats.f(count - 1, count - 1).ppf(0.975)
    assert report.chance_ratio(count) == pytest.approx(exact, rel=0.4)


def test_a_single_pass_has_no_spread():
    row = evaluation("SMC", [0.1])
    assert row.spread is None
    assert "?" in list(report._cells(row, 0.0))[5]


@pytest.mark.parametrize(
    ("number", "shown"), [(12.0, "12"), (84e3, "84k"), (2e6, "2M")]
)
def test_counts(number, shown):
    assert count_text(number) == shown


def test_contours_and_windows():
    sampler = Bimodal().sampler()
    x = np.asarray(sampler.path.sample(jr.key(0), 2000)[0], np.float64)
    window = pictures._window([(x, np.full(2000, 1 / 2000))])
    assert all(2.5 < high < 4.5 and -4.5 < low < -2.5 for low, high in window)
    axis = Figure().subplots()
    pictures._contours([axis], sampler.path, 0.0, window)
    assert axis.collections


def test_panels_are_spread_over_the_ladder():
    assert spaced(2, 5) == [0, 1, 2]
    assert spaced(16, 5) == [0, 4, 8, 12, 16]
    assert spaced(1, 5) == [0, 1]
