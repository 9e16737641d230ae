"""The command `annealax`: it writes files; the numbers come from the packages below."""
