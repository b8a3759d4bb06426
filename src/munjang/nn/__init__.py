"""The packed transformer: encoder, attention, pooling, heads and the model families it runs."""
