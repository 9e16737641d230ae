"""Tables, pictures and pages by the modules that `annealax.report` replaces."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from annealax.cli import pimh
from annealax.cli.folder import RunFolder
from annealax.experiments import compare_report, page_command, pictures, report
from annealax.experiments._style import BLUE, ORANGE, new_table
from annealax.experiments.lattice_pictures import of_chain
from annealax.experiments.problem_pictures import show_image


def show(console: Console, path: Path, live: Mapping[str, Any]) -> None:
    """Print the final table, remarks and warnings."""
    if "outcome" in live:
        report.show(console, live["outcome"])
    elif "comparison" in live:
        compare_report.show(console, live["comparison"])
    elif "sample" in live:
        _show_sample(console, live["sample"], live["exact"])
    elif "chain" in live:
        _show_chain(console, live["chain"], live["answer"])
    else:
        content = live["vae"]
        text = (
            f"{content['file']}: ELBO {content['test_elbo']:.2f} nats per test image "
            f"({content['num_test_images']} images). Page and pictures in {path}."
        )
        console.print(text, highlight=False, soft_wrap=True)


def write_page(path: Path) -> list[str]:
    """Write the page."""
    return page_command.write_page(RunFolder(path, existing=True))


def write_report(paths: list[Path], out: Path | None) -> Path:
    """Write a page again."""
    return page_command.write_report(paths, out)


def write_pictures(path: Path, live: Mapping[str, Any]) -> list[str]:
    """Draw the pictures."""
    folder = RunFolder(path, existing=True)
    if "outcome" in live:
        return pictures.draw_all(folder, live["outcome"])
    figures: dict[str, Any] = {}
    if "comparison" in live:
        draw = functools.partial(compare_report.draw, live["comparison"])
        figures["compare.png"] = draw
    elif "sample" in live:
        figures["answer.png"] = live["sample"].plot
    elif "chain" in live:
        chain, answer = live["chain"], live["answer"]
        figures["pimh_trace.png"] = lambda: _draw_trace(chain, answer)
        if "zero_momentum_correlator" in chain.observables:
            figures |= of_chain(chain, chain.configurations.shape[2:])
    else:
        figures["decoded.png"] = lambda: _draw_decoded(live["shown"])
    return pictures.draw_figures(folder, figures)


def _show_sample(console: Console, result: Any, exact: float | None) -> None:
    console.print(result.summary(), highlight=False, soft_wrap=True, markup=False)
    if exact is not None:
        error = result.log_normalizer - exact
        console.print(
            f"exact   log Z {exact:.4f}: off by {error:+.4f}, "
            f"{error / result.log_normalizer_stderr:+.1f} standard errors",
            highlight=False,
        )


def _show_chain(console: Console, chain: Any, answer: Mapping[str, Any]) -> None:
    view = new_table(
        f"{answer['name']}: {answer['label']}, "
        f"{chain.accepted.shape[0]} x {chain.accepted.shape[1]} iterations of "
        f"{answer['num_particles']} particles"
    )
    view.add_column("expectation of")
    for header in ("mean", "standard error", "autocorrelation time"):
        view.add_column(header, justify="right", no_wrap=True)
    for name, mean, error, time in pimh.expectations(chain):
        time_text = "" if time is None else f"{time:.2f}"
        view.add_row(name, f"{mean:.6g}", f"{error:.2g}", time_text)
    console.print(view)
    for line in answer["remarks"]:
        console.print(line, highlight=False)


def _draw_trace(chain: Any, answer: Mapping[str, Any]) -> Figure:
    """Traces of log Z and of the first scalar observables, with running means."""
    scalars = [k for k, v in chain.observables.items() if v.ndim == 2][:2]
    figure = Figure((7.6, 1.6 * (1 + len(scalars)) + 0.5), layout="constrained")
    axes = figure.subplots(1 + len(scalars), 1, sharex=True, squeeze=False).ravel()
    steps = np.arange(1, chain.accepted.shape[1] + 1)
    axes[0].plot(steps, chain.log_normalizer.T, color=BLUE, lw=0.9, alpha=0.8)
    axes[0].set_ylabel("log Z")
    for axis, name in zip(axes[1:], scalars, strict=True):
        trace = chain.observables[name]
        axis.plot(steps, trace.T, color=BLUE, lw=0.9, alpha=0.5)
        running = np.cumsum(trace.mean(axis=0)) / steps
        axis.plot(steps, running, color=ORANGE, lw=1.4, label="running mean")
        axis.set_ylabel(name.replace("_", "\n", 1).replace("_", " "))
    if scalars:
        axes[1].legend(fontsize=8, loc="lower right")
    axes[-1].set_xlabel("iteration")
    title = f"{answer['name']}: {answer['label']}, "
    figure.suptitle(f"{title}acceptance {chain.acceptance_rate:.0%}", fontsize=10)
    return figure


def _draw_decoded(shown: Mapping[str, np.ndarray]) -> Figure:
    """Images, what encoder and decoder make of them, and draws from the prior."""
    count = len(shown["shown_images"])
    figure = Figure((0.95 * max(count, 4), 3.4), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    titles = {
        "shown_images": "test images",
        "shown_decoded": "encoded and decoded again",
        "shown_prior": "draws from the prior, decoded",
    }
    for row, (name, title) in enumerate(titles.items()):
        for column, pixels in enumerate(shown[name]):
            show_image(axes[row, column], pixels, title if column == 0 else "")
    return figure
