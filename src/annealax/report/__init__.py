"""Reports: tables on a terminal, pictures and pages, made from what a folder holds.

    read       the files of a folder as checked records
    tables     rows and sentences, for terminal and page alike
    charts     every chart; one palette
    problem_charts  pictures that only one problem has
    reproduction  pictures, tables and pages of `annealax reproduce`
    page       pages from `templates/` and `style.css`

Libraries that draw are imported when something is drawn.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from annealax.report import read, tables


def show(console: Console, path: Path, part: str | None = None) -> None:
    """Print the final table of what a folder holds, what it says, and the warnings.

    Args:
        console: Where to.
        path: The folder.
        part: "pimh" for particle MCMC on top of a run, "reproduce" for figures of the
            paper; None for the work itself.
    """
    if part == "reproduce":
        from annealax.report import reproduction  # noqa: PLC0415

        reproduction.show(console, path)
        return
    found = read.read(path)
    if isinstance(found, read.Comparison):
        tables.print_table(console, tables.comparison_table(found))
        _say_all(console, tables.comparison_remarks(found))
    elif isinstance(found, read.Decoder):
        tables.print_table(console, tables.decoder_table(found))
    elif part == "pimh":
        if found.chain is None:
            raise read.FileError(
                f"there is no {path / 'pimh.npz'}: run `annealax pimh {path}`"
            )
        tables.print_table(console, tables.chain_table(found, found.chain))
        _say_all(console, tables.chain_remarks(found.chain, found.chain_particles))
    elif found.pooled:
        _show_answer(console, found)
    else:
        tables.print_table(console, tables.run_table(found))
        _say_all(console, tables.run_remarks(found))
        mine, others = tables.doubts(found)
        for line in (*mine, *others):
            tables.say(console, f"Warning: {line}", style="yellow")


def _show_answer(console: Console, run: read.Run) -> None:
    """The answer of the automatic mode, as `Sample.summary` put it."""
    file = run.path / "summary.txt"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise read.FileError(f"{file} cannot be read: {error}") from error
    console.print(
        tables.plain(console, text.rstrip("\n")),
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    if run.truth is not None:
        off = tables.off_by_text(run.main, run.truth)
        tables.say(console, f"exact   log Z {run.truth:.4f}: off by {off}")


def _say_all(console: Console, lines: Any) -> None:
    for line in lines:
        tables.say(console, line)


def write_page(path: Path) -> list[str]:
    """Write the page of what a folder holds; returns its name."""
    from annealax.report import page  # noqa: PLC0415

    return [page.write(path / page.NAME, page.render(read.read(path))).name]


def write_comparison(
    paths: Sequence[Path],
    out: Path | None = None,
    priors: Mapping[str, float | int] | None = None,
) -> Path:
    """Write a page: of one folder, or several runs side by side; returns where it is.

    Args:
        paths: The folders.
        out: The file, or a folder for it; None for the folder itself, and the current
            one for several.
        priors: Prior probabilities of models, where several are compared.
    """
    from annealax.report import page  # noqa: PLC0415

    out = out or (paths[0] if len(paths) == 1 else Path())
    if len(paths) == 1:
        return page.write(out, page.render(read.read(paths[0])))
    return page.write(
        out, page.render_runs([read.read_run(path) for path in paths], priors)
    )


def write_pictures(path: Path, run: Any = None) -> list[str]:
    """Draw the pictures of what a folder holds; returns the names of the files.

    Args:
        path: The folder.
        run: What `annealax.load_run` gives, for pictures that need the experiment, its
            sampler and its flows.
    """
    from annealax.report import pictures  # noqa: PLC0415

    return pictures.write(path, run)
