"""Readers of images: IDX, gzipped IDX, npz; and files that are none of these."""

import gzip
import struct

import numpy as np
import pytest

import annealax as ax
from annealax import vae

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 5), np.uint8)


def idx(pixels=PIXELS, magic=0x803):
    return struct.pack(">4I", magic, *pixels.shape) + pixels.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_folder_of_idx_files(tmp_path, zipped):
    for name, pixels in (("train", PIXELS), ("t10k", PIXELS[:3])):
        content, end = idx(pixels), "-images-idx3-ubyte"
        if zipped:
            content, end = gzip.compress(content), f"{end}.gz"
        (tmp_path / f"{name}{end}").write_bytes(content)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"labels")
    images = vae.read_images(tmp_path)
    np.testing.assert_array_equal(images.train, PIXELS >= 128)
    np.testing.assert_array_equal(images.test, PIXELS[:3] >= 128)
    assert images.train.dtype == np.uint8


def test_one_idx_file_is_split(tmp_path):
    (tmp_path / "images").write_bytes(idx())
    images = vae.read_images(tmp_path / "images")
    np.testing.assert_array_equal(images.train, PIXELS[:10] >= 128)
    np.testing.assert_array_equal(images.test, PIXELS[10:] >= 128)


@pytest.mark.parametrize("scale", [1, 255.0])
def test_npz(tmp_path, scale):
    np.savez(tmp_path / "a.npz", x_train=PIXELS / scale if scale > 1 else PIXELS,
             x_test=PIXELS[:2], y_train=np.arange(12))  # fmt: skip
    images = vae.read_images(tmp_path / "a.npz")
    np.testing.assert_array_equal(images.train, PIXELS >= 128)
    assert len(images.test) == 2
    np.savez(tmp_path / "b.npz", x_train=PIXELS)
    assert [len(part) for part in vae.read_images(tmp_path / "b.npz")] == [10, 2]


def write(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


def npz(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f / "none", ["does not exist", "npz"]),
        (lambda f: f, ["train-images", "nothing"]),
        (lambda f: write(f, "a", b"abc"), ["3 bytes"]),
        (lambda f: write(f, "a", idx(magic=0x801)), ["0x00000801", "labels"]),
        (lambda f: write(f, "a", idx()[:-7]), ["cut short", "12 images of 4x5"]),
        (lambda f: write(f, "a.gz", b"not gzipped at all"), ["cannot be read"]),
        (lambda f: write(f, "a.npz", b"no zip"), ["no npz file"]),
        (lambda f: npz(f, images=PIXELS), ["no array x_train", "images"]),
        (lambda f: npz(f, x_train=PIXELS[0]), ["x_train", "(4, 5)"]),
        (lambda f: npz(f, x_train=PIXELS - 300.0), ["from 0 to 1", "-300"]),
        (lambda f: npz(f, x_train=np.array(["a"] * 8).reshape(2, 2, 2)), ["numbers"]),
        (lambda f: npz(f, x_train=PIXELS[:3]), ["too few"]),
    ],
)
def test_wrong_files_say_why(tmp_path, make, words):
    with pytest.raises(ax.InvalidInputError) as error:
        vae.read_images(make(tmp_path))
    assert all(word in str(error.value) for word in words), str(error.value)
