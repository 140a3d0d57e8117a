"""What a training run needs besides a model: corpora, vocabularies, files, checkpoints, scores."""
