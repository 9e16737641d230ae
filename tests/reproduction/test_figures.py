"""The configurations of the figures fit together, and say what the paper says."""

import json

import pytest

import annealax as ax
from annealax.reproduction.figures import FIGURES, SCALES, all_tasks, find_figures
from annealax.reproduction.measure import METHODS

PANELS = [panel for figure in FIGURES.values() for panel in figure.panels]


@pytest.mark.parametrize("scale", SCALES)
def test_every_piece_has_a_name_of_its_own_and_settings_that_are_valid(scale):
    pieces = {}
    for number in FIGURES:
        for task in FIGURES[number].tasks(scale):
            what = (
                task.stage,
                task.line.method,
                json.dumps(dict(task.settings), sort_keys=True, default=list),
                task.repeat,
                task.count,
            )
            assert pieces.setdefault(task.name, what) == what
            assert task.experiment.num_particles >= 1
            assert task.cost > 0
    assert {task.name for task in all_tasks(tuple(FIGURES), scale)} == set(pieces)


def test_flows_come_before_the_chains_that_need_them_and_times_last():
    stages = [task.stage for task in all_tasks(tuple(FIGURES), "cpu")]
    order = ["flows", "measurement", "timing"]
    assert stages == sorted(stages, key=order.index)
    assert set(stages) == set(order)


def test_figures_that_show_the_same_chains_share_them():
    one = {task.name for task in FIGURES[3].tasks("cpu")}
    assert {task.name for task in FIGURES[5].tasks("cpu")} == one
    assert {task.name for task in FIGURES[6].tasks("cpu")} < one


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)
def test_panels_name_lines_and_methods_that_are_there(panel):
    names = [line.name for line in panel.lines]
    assert len(set(names)) == len(names)
    for line in (*panel.lines, panel.gold):
        assert line.method in METHODS or line.method in ("hmc", "sample")
        assert set(line.smaller) <= set(SCALES)
        assert set(line.counts) == set(SCALES)
    for claim in panel.claims:
        assert {claim.better, claim.worse} <= set(names)
    if panel.kind == "chain":
        assert panel.observable
    if not any(line.ours for line in panel.lines) and "raw" not in panel.name:
        assert {each.line for each in panel.shown.readings} <= set(names)


def test_paper_scale_is_that_of_the_paper():
    """Appendix I, in numbers that do not come from the configuration."""
    found = {task.name: task for task in all_tasks(tuple(FIGURES), "paper")}
    craft = found["lgcp-sweep-craft-200-1"].experiment
    assert (craft.grid, craft.num_hmc_steps, craft.num_leapfrog) == (32, 10, 10)
    assert (craft.num_train_steps, craft.learning_rate) == (200, 0.05)
    aft = found["lgcp-sweep-aft-200-1"].experiment
    assert (aft.num_hmc_steps, aft.num_train_steps) == (1000, 500)
    assert aft.learning_rate == 0.01
    assert aft.step_size_betas == craft.step_size_betas == (0, 0.25, 0.5, 1)
    assert aft.step_sizes == craft.step_sizes == (0.3, 0.3, 0.2, 0.2)
    snf = found["lgcp-training-snf-1"].experiment
    assert (snf.num_particles, snf.num_transitions, snf.num_hmc_steps) == (2000, 10, 1)
    vae = found["vae-training-craft-1"].experiment
    assert (vae.num_particles, vae.num_transitions, vae.num_hmc_steps) == (100, 2, 2)
    assert vae.flow_hidden == (150, 150)
    smc = found["phi4-chain-smc-15"].experiment
    assert (smc.lattice, smc.mass_squared, smc.coupling) == ((14, 14), -4.75, 5.1)
    assert (smc.num_transitions, smc.num_hmc_steps, smc.num_leapfrog) == (90, 10, 10)
    assert found["phi4-chain-craft-15"].experiment.flow_layers == 2
    assert found["phi4-chain-vi-15"].experiment.flow_layers == 20
    fewer = found["lgcp-sweep-craft-40-100-1"].experiment
    assert (fewer.grid, fewer.num_hmc_steps, fewer.num_transitions) == (40, 2, 100)
    # What the paper resamples by, and its threshold.
    assert {craft.resample_scheme, smc.resample_scheme} == {"multinomial"}
    assert craft.resample_threshold == smc.resample_threshold == 0.3


def test_aft_trains_on_the_particles_that_the_paper_gives_it():
    found = {task.name: task for task in all_tasks((1, 4), "smoke")}
    halves = METHODS["aft-halves"].trainer(found["lgcp-sweep-aft-4-1"].problem())
    assert halves.sampler.num_particles == 4
    assert (halves.training.num_particles, halves.num_validation) == (2, 2)
    longer = METHODS["aft-longer"].trainer(
        found["lgcp-sweep-aft-longer-40-2-1"].problem()
    )
    steps = longer.training.kernel.num_steps, longer.sampler.kernel.num_steps
    assert steps == (5, 1)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("all", tuple(range(1, 9))), ("3", (3,)), ("figure-3, 5,3", (3, 5))],
)
def test_figures_are_found_by_number(text, numbers):
    assert find_figures(text) == numbers


@pytest.mark.parametrize("text", ["9", "0", "", "one", "1,,2", "-1"])
def test_a_figure_that_is_not_there_is_an_error(text):
    if text == "-1":  # "figure-1" without its word
        assert find_figures(text) == (1,)
        return
    with pytest.raises(ax.InvalidInputError, match="there is no figure"):
        find_figures(text)
