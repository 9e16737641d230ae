"""Tables and the words under them: right for winners and losers alike."""

import io
import json

import numpy as np
import pytest
import tests_run_folder as made_up
from rich.console import Console
from scipy import stats

from annealax import FileError, report
from annealax.report import tables
from annealax.report.read import named_draws, read

SMALL, LARGE = 0.01 * np.tile([1, -1], 5), 0.2 * np.tile([1, -1], 5)


def row(label, errors, *, truth=0.0, stderr=0.125, seconds=1.0):
    """A row of passes that missed by `errors`."""
    values = [float(truth + error) for error in errors]
    changes = {"log_normalizer_stderr": stderr, "seconds_per_pass": seconds}
    return made_up.row(label, values, **changes)


def write(folder, *rows, truth=0.0, work=(1, 1, 1, 1, 1)):
    """The folder of a run with these rows, whose transitions lost so many nats."""
    count = len(work)
    lost = {"step_free_energy": np.asarray(work, float), "step_log_ratio": 0.0}
    lost["step_log_ratio"] = np.zeros(count)
    numbers = made_up.arrays(transitions=count) | lost
    made_up.write(folder, truth=truth, numbers=numbers, pictures=())
    file = folder / "table.json"
    content = json.loads(file.read_text()) | {"rows": rows}
    file.write_text(json.dumps(content))
    return folder


def remarks(folder, *rows, **options):
    return list(tables.run_remarks(read(write(folder, *rows, **options))))


def text(folder, width=110, encoding="utf-8", part=None):
    """What a terminal shows of a folder."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    report.show(Console(width=width, file=file), folder, part)
    file.flush()
    return file.buffer.getvalue().decode(encoding)


# What is said.


def test_a_ladder_is_proposed_where_one_transition_is_hard(tmp_path):
    def advice(*work):
        found = remarks(tmp_path, row("CRAFT", SMALL), work=work)
        return [line for line in found if "ladder" in line]

    (line,) = advice(0.25, 0.25, 0.25, 4.0)
    assert "from 0.75 to 1 loses 4.0 nats, the median one 0.2" in line
    betas = [float(beta) for beta in line.split("ladder=")[1].split(",")]
    # Roots of the work: 1/2, 1/2, 1/2 and 2, to be cut into four times 7/8.
    np.testing.assert_allclose(betas, [0, 0.4375, 0.78125, 0.890625, 1], atol=0.01)
    assert not advice(2.0, 3.0, 4.0, 2.0)
    assert not advice(0.1, np.nan, 0.1, 0.1)
    assert not advice(0.01, 0.01, 0.01, 0.9)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (row("CRAFT", SMALL), row("SMC", LARGE), "CRAFT beats SMC: 400 times smaller"),
        (row("CRAFT", LARGE), row("SMC", SMALL), "SMC beats CRAFT: 400 times smaller"),
        (row("CRAFT", LARGE), row("SMC", 1.2 * LARGE), "No clear winner"),
        # A slower pass counts against a method.
        (
            row("CRAFT", SMALL, seconds=4000.0),
            row("SMC", LARGE),
            "SMC beats CRAFT: 10 times",
        ),
        # A bias counts as error, though the spread is small.
        (row("CRAFT", -1.2 + 1e-3 * SMALL), row("SMC", LARGE), "SMC beats CRAFT"),
    ],
)
def test_the_verdict_follows_the_errors(tmp_path, ours, theirs, words):
    found = remarks(tmp_path, ours, theirs)
    assert any(line.startswith(words) for line in found)


def test_the_verdict_of_a_comparison(tmp_path):
    comparison = read(made_up.write_comparison(tmp_path / "known"))
    winner, chains = tables.comparison_remarks(comparison)
    assert winner.startswith("CRAFT beats SMC: 2500 times smaller squared error")
    assert chains.startswith("HMC has no log Z; R-hat is 1.50: its chains disagree")
    unknown = read(made_up.write_comparison(tmp_path / "unknown", truth=None))
    assert "times smaller variance" in next(tables.comparison_remarks(unknown))
    close = read(made_up.write_comparison(tmp_path / "close", spreads=(0.1, 0.12)))
    assert next(tables.comparison_remarks(close)).startswith("No clear winner")


def test_methods_are_ranked_by_error_and_wrong_ones_marked(tmp_path):
    """A small spread about a wrong value is no merit."""
    path = made_up.write_comparison(tmp_path)
    content = json.loads((path / "compare.json").read_text())
    craft = content["rows"][0]
    for attempt in craft["attempts"]:
        attempt["log_normalizer"] += 1.2
        attempt["seconds"] = 5.2
    (path / "compare.json").write_text(json.dumps(content))
    comparison = read(path)
    table = tables.comparison_table(comparison)
    assert [row[0] for row in table.rows] == ["exact", "SMC", "CRAFT", "HMC"]
    headers = [column.header for column in table.columns]
    shown = [dict(zip(headers, row, strict=True)) for row in table.rows]
    assert shown[2]["error"] == "1.2000 wrong"
    assert "wrong" not in shown[1]["error"]
    assert shown[2]["in all"] == "5.2 s +30%"
    lines = list(tables.comparison_remarks(comparison))
    assert not any(line.startswith("CRAFT beats") for line in lines)
    assert any(line.startswith("CRAFT is wrong: off by +1.2") for line in lines)
    assert any(line.startswith("CRAFT took 30% more") for line in lines)


def test_few_estimates_without_bias_are_called_wrong():
    """One in a hundred: of 2000, 20 +- 4.5 by chance."""
    draws = np.random.default_rng(0).normal(3.0, 0.4, size=(2000, 3))
    assert 5 <= sum(tables.is_wrong(each, 3.0) for each in draws) <= 40
    assert sum(tables.is_wrong(each, 100.0) for each in draws) > 1990
    assert not tables.is_wrong(draws[0, :1], 100.0)  # one repeat has no spread
    assert not tables.is_wrong(draws[0], None)


def test_runs_of_the_same_problem_are_judged(tmp_path):
    write(tmp_path / "a", row("CRAFT", SMALL))
    write(tmp_path / "b", row("SMC", LARGE))
    runs = {name: read(tmp_path / name) for name in ("b", "a")}
    (line,) = tables.runs_verdicts(runs)
    assert line.startswith("gaussian: a beats b: 400 times smaller")
    made_up.write(tmp_path / "other", name="funnel")
    alone = {"a": runs["a"], "other": read(tmp_path / "other")}
    assert not list(tables.runs_verdicts(alone))


def test_runs_are_off_by_something_where_the_truth_is_known(tmp_path):
    for name, truth in (("known", 1.0), ("unknown", None)):
        made_up.write(tmp_path / name, name=name, truth=truth)
    runs = {name: read(tmp_path / name) for name in ("known", "unknown")}
    table = tables.runs_table(runs)
    index = [column.header for column in table.columns].index("off by")
    assert [row[index] for row in table.rows] == ["+4.0 σ", ""]
    alone = tables.runs_table({"unknown": runs["unknown"]})
    assert "off by" not in [column.header for column in alone.columns]


@pytest.mark.parametrize("count", [4, 10, 20, 50])
def test_chance_ratio_is_the_quantile_of_f(count):
    exact = stats.f(count - 1, count - 1).ppf(0.975)
    assert tables.chance_ratio(count) == pytest.approx(exact, rel=0.4)


def test_the_headline_says_whether_to_doubt(tmp_path):
    calm = read(write(tmp_path / "calm", row("CRAFT", SMALL, stderr=0.02)))
    assert tables.headline(calm) == "log Z = 0.010 ± 0.020; nothing to doubt"
    doubtful = row("CRAFT", SMALL) | {"warnings": [made_up.doubt("modes may be lost")]}
    run = read(write(tmp_path / "doubtful", doubtful))
    assert tables.headline(run).endswith("1 reason to doubt it, see below")
    assert tables.doubts(run) == (["Modes may be lost."], [])


# The table of a run.


def test_the_table_shows_truth_mean_and_spread(tmp_path):
    shown = text(write(tmp_path, row("CRAFT", SMALL, truth=2.5), truth=2.5))
    assert "exact" in shown
    assert shown.count("2.5000") == 2  # exact, and the mean
    assert f"{np.std(SMALL, ddof=1):.4f}" in shown
    assert "25%" in shown
    assert "50%" in shown


def test_unknown_truth(tmp_path):
    run = read(write(tmp_path, row("CRAFT", SMALL), truth=None))
    shown = text(tmp_path)
    assert not any(line.lstrip().startswith("exact") for line in shown.splitlines())
    assert "off by" not in shown
    assert run.main.squared_error(None) == pytest.approx(np.var(SMALL, ddof=1))


def test_off_by_is_in_error_bars_of_the_pass(tmp_path):
    run = read(write(tmp_path, row("CRAFT", [0.3, 0.1], stderr=0.15)))
    assert tables.off_by_text(run.main, 0.0) == "+2.0 σ"
    assert tables.off_by_text(run.main, None) == "?"


def test_a_single_pass_has_no_spread(tmp_path):
    run = read(write(tmp_path, row("SMC", [0.1])))
    assert run.main.spread is None
    table = tables.run_table(run)
    spread = [column.header for column in table.columns].index("spread")
    assert table.rows[-1][spread] == "?"


# On a terminal.


@pytest.mark.parametrize("width", [60, 80, 110])
def test_tables_fit_and_names_stay(tmp_path, width):
    rows = [
        row(name, 1e4 * LARGE) for name in ("CRAFT", "SMC, same ladder", "SMC again")
    ]
    shown = text(write(tmp_path / "run", *rows, truth=1e4), width)
    comparison = text(made_up.write_comparison(tmp_path / "comparison"), width)
    for name in ("CRAFT", "SMC, same ladder", "SMC again", "log Z", "spread"):
        assert name in shown
    for name in ("CRAFT", "SMC", "HMC", "log Z"):
        assert name in comparison
    for line in (shown + comparison).splitlines():
        assert len(line.rstrip()) <= width
        assert "…" not in line


def test_a_terminal_that_knows_ascii_only(tmp_path):
    made_up.write_sample(tmp_path / "sample")
    folders = [
        write(tmp_path / "run", row("CRAFT", SMALL), row("SMC", LARGE)),
        made_up.write_comparison(tmp_path / "comparison"),
        made_up.write_decoder(tmp_path / "decoder"),
        tmp_path / "sample",
    ]
    shown = "".join(text(folder, 80, "ascii") for folder in folders)
    assert "+-" in shown
    assert "?" not in shown.replace(" ? ", "")


def test_the_answer_of_the_automatic_mode_is_its_summary(tmp_path):
    assert "log Z  1.5000 +- 0.1250" in text(made_up.write_sample(tmp_path))
    (tmp_path / "summary.txt").unlink()
    with pytest.raises(FileError, match=r"summary\.txt"):
        text(tmp_path)


def test_particle_mcmc_is_a_part_of_a_run(tmp_path):
    made_up.write(tmp_path)
    with pytest.raises(FileError, match="annealax pimh"):
        text(tmp_path, part="pimh")
    numbers = made_up.chain_arrays(steps=50)
    np.savez(tmp_path / "pimh.npz", **numbers)
    plan = {
        "command": "pimh",
        "num_steps": 50,
        "num_chains": 1,
        "num_particles": 30,
        "seed": 0,
    }
    (tmp_path / "pimh.json").write_text(json.dumps(plan))
    shown = text(tmp_path, part="pimh")
    assert "1 × 50 iterations of 30 particles" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("energy")]
    mean, error = numbers["trace_energy"].mean(), float(line.split()[2])
    assert float(line.split()[1]) == pytest.approx(mean, abs=0.1 * error)
    accepted = read(tmp_path).chain.acceptance_rate
    assert f"Accepted {accepted:.0%} of proposals" in shown
    assert "zero momentum correlator[3]" in shown


# Numbers and parameters.


@pytest.mark.parametrize(
    ("number", "shown"), [(12.0, "12"), (84e3, "84k"), (2e6, "2M"), (None, "?")]
)
def test_counts(number, shown):
    assert tables.count_text(number) == shown


def test_parameters_are_weighted():
    weights = np.array([0.7, 0.1, 0.1, 0.1])
    draws = named_draws({"b": np.array([1.0, 2, 3, 4]), "a": np.zeros(4)}, weights)
    table = tables.parameter_table(draws)
    assert [cells[0] for cells in table.rows] == ["b", "a"]  # in the given order
    assert [float(cell) for cell in table.rows[0][1:]] == pytest.approx(
        [1.6, np.sqrt(0.7 * 0.36 + 0.1 * (0.16 + 1.96 + 5.76)), 1, 1, 4], abs=1e-3
    )


def test_settings_that_differ(tmp_path):
    first = read(made_up.write(tmp_path / "a"))
    second = read(made_up.write(tmp_path / "b", overrides={"num_particles": 50}))
    table = tables.differing_settings({"a": first, "b": second})
    assert table.rows == (("num_particles", "200", "50"),)
