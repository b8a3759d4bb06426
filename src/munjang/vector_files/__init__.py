"""Files of vectors, written as they come and resumable after a kill at any moment; and read again.

`open_writer` gives a `VectorWriter` for .npy, .parquet or .jsonl; `read_vectors` reads any of them. Needs numpy only;
.parquet needs the extra `parquet`.
"""

from munjang.vector_files.reading import read_vectors
from munjang.vector_files.writer import VectorWriter, open_writer

__all__ = ["VectorWriter", "open_writer", "read_vectors"]
