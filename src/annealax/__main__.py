"""`python -m annealax` is the command `annealax`."""

from annealax.cli.main import main

if __name__ == "__main__":
    main()
