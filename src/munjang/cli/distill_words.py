"""What `munjang distill` says about itself."""

from __future__ import annotations

EXAMPLES = """\
examples:
  another language: an English model teaches a student English and Korean over translations, with a new vocabulary
    munjang distill --teacher MODEL --parallel parallel --data DATA --vocabulary 32000 --embeddings translations \\
        --dev korsts --test korsts --test stsb --test tatoeba -o runs/bilingual
  the same language, half of the layers, over plain sentences
    munjang distill --teacher MODEL --texts sentences.txt --layers 3 --dev stsb --test stsb --data DATA -o runs/small
  several files, some of them more often; a source column of a file splits it, and each part has its own weight
    munjang distill --teacher MODEL --parallel talks.tsv --parallel mine.tsv=2 --weight news=0.5 -o runs/mixed
  several teachers: the first gives the vectors, the other, of another width, how near texts are to each other
    munjang distill --teacher MODEL --teacher OTHER:relational=0.3 --parallel talks.tsv -o runs/two
  a cross-encoder teaches a bi-encoder (negatives are found where the pairs have none), or a smaller cross-encoder
    munjang distill --teacher RERANKER --student MODEL --pairs questions.tsv -o runs/from-cross
    munjang distill --teacher RERANKER --layers 3 --pairs triplets.tsv -o runs/small-cross

A parallel file has two columns (en and ko, or anchor and positive: the teacher's language first) or is the name of a
public set in --data. The student is the teacher's own body unless --student names another; --layers, --hidden,
--dimension and --vocabulary make it over. The same command goes on where a killed one stopped; unchanged stages are
skipped. RUN/model is the student, RUN/index.html shows what happened.
"""
