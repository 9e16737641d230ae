"""Pages into files: at the end of a run, and by the command `annealax report`."""

from pathlib import Path

from annealax._errors import InvalidInputError
from annealax.cli.folder import RunFolder
from annealax.experiments._html import GENERATOR, Html
from annealax.experiments._run_files import read_files
from annealax.experiments.page import run_page
from annealax.experiments.page_compare import several_runs_page
from annealax.experiments.page_methods import methods_page
from annealax.experiments.page_vae import vae_page

NAME = "report.html"


def write_page(folder: RunFolder) -> list[str]:
    """Write the page of a run or comparison into its folder; returns its name."""
    return [_write(folder.path / NAME, _single(folder.path)).name]


def write_report(runs: list[Path], out: Path | None = None) -> Path:
    """Write the page of a run again, or a page that compares several runs."""
    if len(runs) == 1:
        page = _single(runs[0])
        return _write(out or runs[0] / NAME, page)
    page = several_runs_page([read_files(run) for run in runs])
    return _write(out or Path(NAME), page)


def _single(path: Path) -> Html:
    if (path / "compare.json").exists() and not (path / "table.json").exists():
        return methods_page(path)
    if (path / "vae.json").exists():
        return vae_page(path)
    return run_page(read_files(path))


def _write(path: Path, page: Html) -> Path:
    """Write a page, but over nothing that is not a page of ours."""
    if path.is_dir():
        path = path / NAME
    try:
        foreign = path.exists() and GENERATOR.encode() not in path.read_bytes()[:4096]
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    if foreign:
        raise InvalidInputError(
            f"{path} is there already, and is not a page of annealax: choose another "
            "file with --out"
        )
    with RunFolder(path.parent, existing=True).writing(path.name) as file:
        file.write(page.encode())
    return path
