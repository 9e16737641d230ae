"""Reasons to doubt a result: a sentence for people, a code for scripts."""


class Doubt(str):
    """A reason to doubt a result.

    It is a sentence, and it has a code, so that a script can refuse a result:

        if any(doubt.code == "heavy-tail" for doubt in result.warnings()): ...

    Args:
        code: What kind of reason it is; `annealax.Doubt.CODES` lists all.
        text: The sentence.
    """

    code: str
    __slots__ = ("code",)

    def __new__(cls, code: str, text: str):
        """A sentence with a code."""
        doubt = super().__new__(cls, text)
        doubt.code = code
        return doubt
