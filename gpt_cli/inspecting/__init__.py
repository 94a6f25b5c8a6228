"""Looking into a model: where its heads look, as files, pictures and terminal drawings."""
