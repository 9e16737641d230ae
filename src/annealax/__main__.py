"""`python -m annealax` is the command `annealax`."""

from annealax.experiments.cli import main

if __name__ == "__main__":
    main()
