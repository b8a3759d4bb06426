"""Documents and their vectors on disk: add, delete, search by meaning, by words, or both.

    documents -> documents.py -> cutting.py -> (model) -> adding.py -> SQLite: schema.py, store.py, codes.py
    one committed state: state.py -> dense.py, keyword.py, kept in step by derived.py
    query -> searching.py: filters.py + columns.py, ranking.py, fusion.py, reranking.py -> results.py

`Index` (index.py) is the front; transfer.py writes and reads .parquet, verifying.py checks that all is whole, and
reencoding.py moves an index to another model.
"""
