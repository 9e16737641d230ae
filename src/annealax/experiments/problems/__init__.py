"""The experiments that come with annealax: one problem a file."""
