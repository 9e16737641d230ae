"""Reasons to doubt a result: a sentence for people, a code for scripts."""

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "diverged": (
            "training went wrong and was undone up to its last good state",
            "lower the learning rate or the step sizes, or clip the gradient",
        ),
        "edge-mass": (
            "mass is pressed against a bound, nearer than the precision can tell",
            'use dtype="float64", or the logarithm of the distance from the bound',
        ),
        "failed-calls": (
            "the density, a black box, raised exceptions at some points, which got "
            "weight zero",
            "make it return -inf where it is zero, and mend it elsewhere",
        ),
        "few-draws": (
            "expectations rest on few points: the effective sample size is small",
            "add particles or temperatures",
        ),
        "few-roots": (
            "few of the initial draws have descendants, so the error bar itself is "
            "uncertain and modes may be missing",
            "add particles, or temperatures near the first one",
        ),
        "heavy-tail": (
            "a few contributions dominate an average: it has a heavy tail, and its "
            "error bar is too small",
            "add particles or temperatures, or use an initial distribution with "
            "heavier tails",
        ),
        "infinite-density": (
            "the density was infinite somewhere",
            "look for a division by zero or a log of zero with the wrong sign",
        ),
        "large-error": (
            "the error of log Z is too large for a normal approximation",
            "add particles or temperatures",
        ),
        "not-as-precise": (
            "the error of log Z, or the number of draws, is not what was asked for",
            "give a larger budget, or ask for less by precision= and draws=",
        ),
        "lost-mode": (
            "a mode that is known holds mass, and next to no draws are there",
            "give the mode with initial=, or train flows with flow=",
        ),
        "low-acceptance": (
            "the Markov kernel rejects most of its proposals at some temperature",
            "lower the step size there",
        ),
        "nan-density": (
            "the density was not a number at some particles, which got weight zero",
            "make the function finite, or -inf where the density is zero",
        ),
        "not-integrable": (
            "the density does not fall far out: it may have no finite integral",
            "give a prior, or bounds on the parameters",
        ),
        "passes-disagree": (
            "independent passes spread by more than their own error bars say",
            "trust the spread; add particles, for some passes may miss modes",
        ),
        "replicates-disagree": (
            "independent replicates disagree by more than their error bars say",
            "add particles or replicates, for some may miss modes",
        ),
        "rounding": (
            "rounding in single precision is a large part of the error of log Z",
            'use double precision (for `ax.sample`, dtype="float64")',
        ),
        "second-opinion": (
            "passes from another start found more mass than the answer has",
            "say more of what you know with prior=, region= or initial=",
        ),
        "skipped-updates": (
            "updates of the flows were left out because their gradient was not finite",
            "lower the learning rate or the step sizes",
        ),
        "uncertain-modes": (
            "the share of a mode is uncertain: few particles went there",
            "add particles",
        ),
        "unseen-modes": (
            "modes may exist that were not found: log Z may be too low",
            "say where to look with prior=, region= or initial=",
        ),
        "zero-density": (
            "the density was zero at some particles, which got weight zero",
            "restrict the parameters to where the density is positive",
        ),
    }
)
"""What each code means, and what to do about it."""


class Doubt(str):
    """A reason to doubt a result.

    It is a sentence, and it has a code, so that a script can refuse a result:

        if any(doubt.code == "heavy-tail" for doubt in result.warnings()): ...

    Args:
        code: What kind of reason it is: one of `Doubt.CODES`, which says what each
            means and what to do about it.
        text: The sentence.
    """

    __slots__ = ("code",)
    CODES = CODES
    code: str

    def __new__(cls, code: str, text: str):
        """A sentence with a code."""
        if code not in CODES:
            raise ValueError(f"unknown code {code!r}; one of {', '.join(CODES)}")
        doubt = super().__new__(cls, text)
        doubt.code = code
        return doubt
