"""TensorBoard's event files, which are simple enough to be written by hand.

A file is a sequence of records: the length of the data (8 bytes), its checksum, the
data, their checksum. The data of a record are a protobuf message `Event` with the wall
time (field 1), the step (2) and a summary (5) of tagged numbers.
"""

import os
import struct
import time
import warnings
from pathlib import Path

from annealax._work.checkpoint import CheckpointWarning
from annealax._work.drive import Progress


class TensorBoard:
    """Numbers of every step for `tensorboard --logdir FOLDER`; no package is needed.

    Args:
        folder: Folder for the event file, one for each run.
        prefix: Put before the name of every number, such as "training/".
    """

    def __init__(self, folder: str | os.PathLike, *, prefix: str = ""):
        self.folder = Path(folder)
        self.prefix = prefix
        self._path: Path | None = None

    def __call__(self, snapshot: Progress) -> None:
        """Add the steps of a device call."""
        metrics = snapshot.metrics()
        count = len(next(iter(metrics.values())))
        now = time.time()
        records = [
            event(
                now,
                snapshot.step - count + i + 1,
                {f"{self.prefix}{k}": float(v[i]) for k, v in metrics.items()},
            )
            for i in range(count)
        ]
        try:
            if self._path is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                name = f"events.out.tfevents.{now:.6f}.annealax"
                records.insert(0, version_event(now))
                self._path = self.folder / name
            with self._path.open("ab") as file:
                file.write(b"".join(records))
        except OSError as error:  # a log must not end the work
            warnings.warn(
                f"cannot write to {self.folder}: {error.strerror}; some steps are lost",
                CheckpointWarning,
                stacklevel=2,
            )


def event(now: float, step: int, numbers: dict[str, float]) -> bytes:
    """A record with the numbers of one step."""
    values = b""
    for name, value in numbers.items():
        tagged = _text(1, name) + b"\x15" + struct.pack("<f", value)
        values += _bytes(1, tagged)
    return _record(_time(now) + b"\x10" + _varint(step) + _bytes(5, values))


def version_event(now: float) -> bytes:
    """The record that every file begins with."""
    return _record(_time(now) + _text(3, "brain.Event:2"))


def _time(now: float) -> bytes:
    return b"\x09" + struct.pack("<d", now)


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join(
        [length, _masked_checksum(length), data, _masked_checksum(data)],
    )


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return table


_TABLE = _table()


def _masked_checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)
