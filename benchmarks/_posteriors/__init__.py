"""Twenty posteriors of the kinds that statisticians have, on simulated data."""
