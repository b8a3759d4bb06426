"""The packed transformer: token ids in one flat run, hidden states out, nothing padded."""
