"""The automatic mode: a log density in, samples and log Z out."""
