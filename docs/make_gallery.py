"""The gallery: every script of `examples/` as a notebook that was run, and its picture.

    python docs/make_gallery.py            # all, into docs/gallery
    python docs/make_gallery.py bimodal    # one

A script is a notebook in the percent format: its first cell says what it shows.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import jupytext
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
SCRIPTS = {
    path.stem: path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if path.read_text(encoding="utf-8").startswith("# %% [markdown]")
}


def run(name: str, folder: Path) -> tuple[Path, Path]:
    """Run a script as a notebook; the notebook and the picture that it left."""
    notebook = jupytext.read(SCRIPTS[name])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, resources=place).execute()
    for index, cell in enumerate(notebook.cells):  # the same again, where it can be
        cell["id"] = f"{name}-{index}".replace("_", "-")
        cell.metadata.clear()
    written = folder / f"{name}.ipynb"
    jupytext.write(notebook, written)
    return written, folder / f"{name}.png"


def main(names: list[str]) -> None:
    """Make notebooks, pictures and the page."""
    notebooks = ROOT / "docs" / "gallery"
    pictures = ROOT / "docs" / "images" / "gallery"
    for folder in (notebooks, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            notebook, picture = run(name, Path(folder))
            shutil.copy(notebook, notebooks / notebook.name)
            shutil.copy(picture, pictures / picture.name)
        print(name, flush=True)
    (ROOT / "docs" / "gallery.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """The page, from the first cells of the scripts."""
    parts = [
        "# Gallery",
        "Short scripts to copy from, each with the picture that it makes. Tests run "
        "them as notebooks; `python docs/make_gallery.py` makes this page.",
    ]
    for name, path in SCRIPTS.items():
        title, *words = jupytext.read(path).cells[0].source.split("\n")
        parts += [
            f"## {title.lstrip('# ')}",
            "\n".join(words),
            f"![{title.lstrip('# ')}](images/gallery/{name}.png)",
            f"[Notebook](gallery/{name}.ipynb){{download}}",
            f'??? example "examples/{name}.py"\n    ```{{.python}}\n'
            f'    --8<-- "examples/{name}.py"\n    ```',
        ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
