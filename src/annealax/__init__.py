"""annealax."""
