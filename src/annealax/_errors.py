"""The errors that annealax raises: each names the value, the cause and the remedy."""


class AnnealaxError(Exception):
    """Base class of every error that annealax raises on purpose."""


class InvalidInputError(AnnealaxError, ValueError):
    """An argument, a setting or a function of the user's cannot be used."""


class SamplingError(AnnealaxError, RuntimeError):
    """A run went wrong in a way that makes its numbers meaningless."""


class MissingExtraError(AnnealaxError, ImportError):
    """Something needs a package that is an optional extra."""
