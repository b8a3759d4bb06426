"""A model for other programs: `export` writes it for sentence-transformers, for ONNX runtimes, or compactly.

graph.py      an ONNX graph as plain records, and the arithmetic of layers
body.py       the encoder, padded          outputs.py   pooling, heads, classifier
onnx_file.py  the graph to a file          checking.py  read again and compared
writing.py    `export`                     usage.py     how to use the result, as code
"""

from munjang.exporting.options import (
    DTYPES,
    Check,
    ExportDType,
    Exported,
    ExportFormat,
    ExportOptions,
)
from munjang.exporting.usage import usage
from munjang.exporting.writing import check_request, export

__all__ = [
    "DTYPES",
    "Check",
    "ExportDType",
    "ExportFormat",
    "ExportOptions",
    "Exported",
    "check_request",
    "export",
    "usage",
]
