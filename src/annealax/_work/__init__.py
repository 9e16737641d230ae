"""Long work: driven, saved, resumed, watched and interrupted."""
