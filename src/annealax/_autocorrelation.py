r"""Integrated autocorrelation time of traces.

$$\tau = 1 + 2 \sum_{t \ge 1} \rho(t),$$

summed up to the first window :math:`M \ge 5 \tau(M)` (Sokal 1997), the autocovariance
averaged over chains about their common mean.
"""

import numpy as np

_WINDOW = 5.0


def integrated_autocorrelation_time(trace: np.ndarray) -> np.ndarray:
    """Autocorrelation time of traces of shape (chains, iterations, ...).

    The result has the trailing shape. It is at least 1: anticorrelated traces are not
    given credit, and a constant trace counts as independent.
    """
    chains, length = trace.shape[:2]
    flat = np.asarray(trace, np.float64).reshape(chains, length, -1)
    centred = flat - flat.mean(axis=(0, 1))
    size = 2 ** int(np.ceil(np.log2(max(2 * length, 2))))
    spectrum = np.fft.rfft(centred, size, axis=1)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size, axis=1)[:, :length]
    covariance = covariance.mean(axis=0) / length
    variance = np.where(covariance[0] > 0, covariance[0], 1.0)
    times = 2 * np.cumsum(covariance / variance, axis=0) - 1
    windows = np.arange(length)[:, None] >= _WINDOW * times
    first = np.where(windows.any(axis=0), windows.argmax(axis=0), length - 1)
    time = times[first, np.arange(flat.shape[2])]
    time = np.where(covariance[0] > 0, np.maximum(time, 1.0), 1.0)
    return time.reshape(trace.shape[2:])
