"""The paper's experiments, figure by figure: `annealax reproduce`.

    paper      what the paper shows: values read off its figures, and what it claims
    figures    one declarative configuration for each figure
    measure    one piece of a figure, measured: a training, a chain, a repeat
    runner     all pieces, one after the other or side by side
    agreement  the paper beside ours, with error bars, in words

What is drawn and written from it is `annealax.report.reproduction`.
"""
