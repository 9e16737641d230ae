"""Small charts as SVG inside a page: they follow its colours, light or dark.

Coordinates of the data are turned into pixels of the picture; what leaves the plotting
area is cut off by an inner `svg` element.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from annealax.experiments._html import Html, tag

Number = float | int

_MAX_POINTS = 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 34


@dataclasses.dataclass
class Chart:
    """A chart with axes; marks are added one after the other.

    Args:
        x: Limits of the horizontal axis.
        y: Limits of the vertical axis.
        x_label: What the horizontal axis is.
        size: Width and height in pixels, axes included.
        y_ticks: Whether the vertical axis has numbers.
        whole: Whether only whole numbers make sense on the horizontal axis.
    """

    x: tuple[Number, Number]
    y: tuple[Number, Number]
    x_label: str = ""
    size: tuple[int, int] = (340, 210)
    y_ticks: bool = True
    whole: bool = False
    marks: list[Html] = dataclasses.field(default_factory=list)

    @property
    def _left(self) -> int:
        return _LEFT if self.y_ticks else 8

    @property
    def _bottom(self) -> int:
        return _BOTTOM if self.x_label else 18

    @property
    def _inside(self) -> tuple[int, int]:
        width, height = self.size
        return width - self._left - _RIGHT, height - _TOP - self._bottom

    def _place(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Pixels inside the plotting area, one row per point."""
        width, height = self._inside
        (x0, x1), (y0, y1) = self.x, self.y
        across = width * (np.asarray(x, np.float64) - x0) / (x1 - x0)
        down = height * (1 - (np.asarray(y, np.float64) - y0) / (y1 - y0))
        # Far outside is outside all the same, and short to write.
        return np.clip(np.stack([across, down], axis=1), -9999, 9999)

    def line(self, x: Sequence | np.ndarray, y: Sequence | np.ndarray, kind: str):
        """A line through the points; gaps where a value is not finite."""
        points = self._place(np.asarray(x), np.asarray(y))
        parts, fresh = [], True
        for across, down in points:
            if not math.isfinite(across + down):
                fresh = True
                continue
            parts.append(f"{'M' if fresh else 'L'}{across:.1f} {down:.1f}")
            fresh = False
        self.marks.append(tag("path", d="".join(parts), class_=kind))

    def dots(self, x: Sequence | np.ndarray, y: Sequence | np.ndarray, kind: str):
        """A round dot at every finite point: lines of no length with round ends."""
        points = self._place(np.asarray(x), np.asarray(y))
        points = points[np.isfinite(points).all(axis=1)]
        path = "".join(f"M{across:.1f} {down:.1f}h0" for across, down in points)
        self.marks.append(tag("path", d=path, class_=kind))

    def bars(self, edges: np.ndarray, heights: np.ndarray):
        """A histogram, as one filled outline."""
        x, y = np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])
        points = self._place(x, y)
        path = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
        self.marks.append(tag("path", d=path + "Z", class_="area"))

    def text(self, x: Number, y: Number, words: str, *, lift: Number = 4):
        """Words that begin at a point, a little above it."""
        ((across, down),) = self._place(np.array([x]), np.array([y]))
        self.marks.append(tag("text", words, x=f"{across:.1f}", y=f"{down - lift:.1f}"))

    def draw(self, description: str) -> Html:
        """The picture.

        Args:
            description: What it shows, for those who cannot see it.
        """
        (width, height), (across, down) = self.size, self._inside
        inner = tag("svg", *self.marks, x=self._left, y=_TOP, width=across, height=down)
        frame = tag(
            "path",
            d=f"M{self._left} {_TOP}V{_TOP + down}H{self._left + across}",
            class_="frame",
        )
        return tag(
            "svg",
            frame,
            inner,
            *self._labels(),
            viewBox=f"0 0 {width} {height}",
            class_="chart",
            role="img",
            aria_label=description,
        )

    def _labels(self) -> list[Html]:
        across, down = self._inside
        found = []
        for value in ticks(*self.x, count=max(4, across // 36)):
            if self.whole and value % 1:
                continue
            place = self._left + across * (value - self.x[0]) / (self.x[1] - self.x[0])
            found.append(
                tag(
                    "text",
                    tick_text(value),
                    x=f"{place:.1f}",
                    y=_TOP + down + 14,
                    text_anchor="middle",
                )
            )
        for value in ticks(*self.y, count=6) if self.y_ticks else ():
            place = _TOP + down * (1 - (value - self.y[0]) / (self.y[1] - self.y[0]))
            found.append(
                tag(
                    "text",
                    tick_text(value),
                    x=self._left - 6,
                    y=f"{place + 4:.1f}",
                    text_anchor="end",
                )
            )
        if self.x_label:
            found.append(
                tag(
                    "text",
                    self.x_label,
                    x=self._left + across / 2,
                    y=self.size[1] - 4,
                    text_anchor="middle",
                )
            )
        return found


def ticks(low: Number, high: Number, count: int) -> list[float]:
    """Round numbers between the limits, at most `count` of them."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return []
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    for step in (m * power for m in (1, 2, 5, 10, 20, 50)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < count:
            return [index * step for index in range(first, last + 1)]
    return []


def tick_text(value: Number) -> str:
    """A short number; minus signs as printers set them."""
    return f"{value:.6g}".replace("-", "−")


def limits(values: np.ndarray, margin: float = 0.08) -> tuple[float, float]:
    """Limits around the finite values, never empty."""
    finite = np.asarray(values, np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    width = (high - low) * margin
    if not width > 1e-9 * max(abs(low), abs(high)):
        width = 0.5 * max(abs(low), abs(high), 1e-3)  # all the same
    return low - width, high + width


def thin_out(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most some hundred points: averages over neighbours where there are more."""
    width = -(-len(y) // _MAX_POINTS)
    if width <= 1:
        return x, y
    count = len(y) // width
    x, y = (v[: count * width].reshape(count, width).mean(axis=1) for v in (x, y))
    return x, y
