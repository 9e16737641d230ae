"""The strict CSV reader: what it accepts, and what its errors say."""

import numpy as np
import pytest

from annealax import InvalidInputError
from annealax.targets._csv import MissingFileError, load_numbers, read_csv


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_reads_numbers_and_text(write):
    table = read_csv(write('# note\nname, x,y\n\n"a, b",1,-2e3\n c ,+0.5, 7 \n'))
    assert table.names == ("name", "x", "y")
    assert table.lines == (4, 5)
    assert table.text("name") == ["a, b", "c"]
    np.testing.assert_array_equal(table.numbers(["y", "x"]), [[-2e3, 1], [7, 0.5]])


def test_reads_a_byte_order_mark_and_windows_line_ends(write):
    table = read_csv(write(b"\xef\xbb\xbfx,y\r\n1,2\r\n"))
    np.testing.assert_array_equal(table.numbers(["x", "y"]), [[1, 2]])


def test_missing_values_only_where_allowed(write):
    table = read_csv(write("x,y\n1,2\n,nan\n"))
    np.testing.assert_array_equal(
        table.numbers(["x", "y"], missing=True), [[1, 2], [np.nan, np.nan]]
    )
    with pytest.raises(InvalidInputError, match="line 3, column 'x': .* empty cell"):
        table.numbers(["x"])
    with pytest.raises(InvalidInputError, match="line 3, column 'y': .* 'nan'"):
        table.numbers(["y"])


@pytest.mark.parametrize("cell", ["ten", "inf", "-inf", "1_000", "1.2.3", "0x1F"])
def test_cell_that_is_not_a_finite_number(write, cell):
    path = write(f"x,y\n1,2\n3,{cell}\n")
    with pytest.raises(InvalidInputError) as info:
        read_csv(path).numbers(["x", "y"], missing=True)
    message = str(info.value)
    for part in (str(path), "line 3", "column 'y'", repr(cell), "correct the cell"):
        assert part in message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; its first line must name the columns"),
        ("\n \n# x\n", "is empty"),
        ("x,y\n", "no rows below it"),
        ("1,2\n3,4\n", "line 1: the first line must name the columns.*column1,column2"),
        ("x,x\n1,2\n", "line 1: two columns are called 'x'; rename one"),
        (',x\n"1",2\n', "line 1: column 1 has no name.*row.names = FALSE"),
        ("x,y\n1,2\n3\n", "line 3: 1 cells, but the header names 2 columns"),
        ("x,y\n1,2,3\n", "line 2: 3 cells"),
        ('x,y\n"1,2\n', "after line 1: unexpected end of data; check the quotes"),
        (b"x,y\n1,\xff\n", "is not UTF-8 text.*save it as CSV with UTF-8"),
    ],
)
def test_malformed_file(write, content, message):
    with pytest.raises(InvalidInputError, match=message) as info:
        read_csv(write(content))
    assert "table.csv" in str(info.value)


def test_unknown_column(write):
    with pytest.raises(InvalidInputError, match="no column 'z'; its columns are 'x', "):
        read_csv(write("x,y\n1,2\n")).numbers(["z"])


def test_missing_file(tmp_path):
    path = tmp_path / "absent.csv"
    with pytest.raises(MissingFileError, match="there is no file .*absent.csv.*check"):
        read_csv(path)
    with pytest.raises(FileNotFoundError):
        read_csv(str(path))
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_csv(tmp_path)


def test_shipped_tables():
    pines = load_numbers("finpines_raw.csv", ("x_m", "y_m"))
    assert pines.shape == (126, 2)
    assert len(np.unique(pines, axis=0)) == 126
    seeds = load_numbers("seeds.csv", ("r", "n", "x1", "x2"))
    assert seeds.sum(axis=0).tolist() == [424, 831, 10, 11]
    brownian = load_numbers(
        "brownian_observations.csv", ("observed_loc",), missing=True
    )
    assert np.flatnonzero(np.isnan(brownian)).tolist() == list(range(10, 20))
