"""Munjang beside sentence-transformers: `python -m benchmarks.encode`. Not part of the installed package."""
