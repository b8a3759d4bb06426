"""An index on a database server: PostgreSQL with pgvector, or Milvus, with the same calls as an index in a folder.

address.py -> opening.py -> engine.py (the interface): postgres.py, milvus.py
retrying.py    a lost connection is made again, and nothing is written twice
index.py       RemoteIndex: cutting, encoding, comparing, searching, over any engine
copying.py     from any index to any other
"""
