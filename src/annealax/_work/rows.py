"""A function on the rows of a matrix: what workers of a black box are asked to do.

It needs NumPy alone, so that workers are there at once: importing JAX takes seconds and
memory, in every process.
"""

import numpy as np


class Rows:
    """Evaluates a function at points that are rows.

    Args:
        function: The function.
        shape: Shape of a point, or a dict of shapes.
        vectorised: Whether the function takes many points at once.
    """

    def __init__(self, function, shape, vectorised):
        self.function, self.shape, self.vectorised = function, shape, vectorised

    def __call__(self, matrix):
        """Values, how many calls failed, and why the first of them did."""
        values = np.full(len(matrix), np.nan)
        failed, reason = 0, ""
        points = [matrix] if self.vectorised else matrix
        for index, point in enumerate(points):
            where = slice(None) if self.vectorised else index
            try:
                found = np.asarray(self.function(self._value(point)), np.float64)
                values[where] = found.reshape(values[where].shape)
            except Exception as error:
                failed += len(matrix) if self.vectorised else 1
                reason = reason or f"{type(error).__name__}: {error}"
        return values, failed, reason

    def _value(self, point):
        """What the function takes, of its own: it may write to it."""
        lead = point.shape[:-1]
        if not isinstance(self.shape, dict):
            return point.reshape((*lead, *self.shape)).copy()
        stops = np.cumsum([int(np.prod(each)) for each in self.shape.values()])[:-1]
        parts = np.split(point, stops, axis=-1)
        return {
            name: part.reshape((*lead, *each)).copy()
            for (name, each), part in zip(self.shape.items(), parts, strict=True)
        }
