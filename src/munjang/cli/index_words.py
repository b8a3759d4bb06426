"""What `munjang index` says about itself: what every action does, and examples."""

from __future__ import annotations

ACTIONS = {
    "create": "make an index of files of documents",
    "add": "add documents; one whose id is there is replaced",
    "delete": "take documents out, by id",
    "get": "show documents, by id",
    "info": "what lies in an index",
    "verify": "check that everything in an index is whole",
    "reencode": "move an index to another model",
    "compact": "give back the room of what was deleted, and build the fast structures anew",
    "export": "write documents, passages and vectors to a Parquet file",
    "import": "make an index from an exported Parquet file, without encoding again",
    "copy": "copy an index to another place, folder or server, and compare both",
}
DESCRIPTION = (
    "An index is a folder of documents, their vectors and their keywords, or the same on a server; `munjang search` "
    "searches it."
)
EXAMPLES = """\
examples:
  munjang index create my-index faq.csv --column question    every other column is metadata to filter by
  munjang index add my-index more.jsonl                      rows with a known id replace the document
  munjang index delete my-index faq-17 faq-18
  munjang index info my-index
  munjang search my-index "환불은 어떻게 하나요?" --rerank

PATH is a folder, or an address: postgresql://user:password@host/database?index=NAME, milvus://host:19530/NAME.
A password may stand in PGPASSWORD or MILVUS_PASSWORD instead.

`munjang index ACTION --help` explains an action.
"""
READ_EXAMPLES = """\
examples:
  munjang index {action} my-index faq.csv                     texts in the column text, ids in id, if it is there
  munjang index {action} my-index news.csv --column 본문 --id-column 번호 --metadata 분류,날짜
  munjang index {action} my-index notes/ --whole-files        every .txt and .md is a document, its name the id
  zcat posts.jsonl.gz | munjang index {action} my-index - --format jsonl

Everything is read once before the work begins: a broken row is named by its line, and nothing is added.
{kept}
Columns of a csv or tsv that hold nothing but numbers are kept as numbers (year>=2020), unless --as-text names them.
A column named title is searched with the text, unless --title names another column or --no-title is given.
"""
CREATED = "Interrupted with Ctrl-C, the command leaves no index; killed, at most an empty one."
ADDED = "Interrupted with Ctrl-C or killed, the index stays as it was."
DELETE_EXAMPLES = """\
examples:
  munjang index delete my-index faq-17 faq-18
  cut -f 1 withdrawn.tsv | munjang index delete my-index - --missing-ok

All of them are deleted or, where an id is not there, none.
"""
GET_EXAMPLES = """\
examples:
  munjang index get my-index faq-17
  munjang index get my-index faq-17 faq-18 --json | jq .metadata
"""
COPY_EXAMPLES = """\
examples:
  munjang index copy my-index "postgresql://user@db.example.org/search?index=faq"
  munjang index copy "postgresql://user@db.example.org/search?index=faq" milvus://localhost:19530/faq

Interrupted with Ctrl-C or killed, the same command goes on where it stopped. At the end both sides are read and
compared: ids, texts, metadata, passages and vectors.
"""
REENCODE_EXAMPLES = """\
examples:
  munjang index reencode my-index                             to the bundled model
  munjang index reencode my-index --model ./my-model --chunk-tokens 128

The stored texts are encoded again beside the old vectors. Until all are, the index is searched with its old model and
cannot be written. Interrupted with Ctrl-C or killed, the same command goes on where it stopped. Services that have the
index open must be started again afterwards.
"""
TRANSFER_EXAMPLES = """\
examples:
  munjang index export my-index my-index.parquet
  munjang index import copy my-index.parquet
"""
