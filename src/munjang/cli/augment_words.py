"""What `munjang augment` says about itself."""

from __future__ import annotations

DESCRIPTION = """\
Augmented SBERT: a bi-encoder from few labelled pairs, or from none of its domain.

A cross-encoder compares two sentences better than a bi-encoder, but too slowly to search with. So it is trained on the
labelled pairs, labels many more (the silver pairs), and the bi-encoder learns from both. The report says whether that
helped: the same bi-encoder is trained on the labelled pairs alone, and both are compared on the same test rows.
"""

EXAMPLES = """\
few labelled pairs: --gold, and more sentences of the same kind where there are any
  munjang augment --model MODEL --gold mine.tsv --dev mine-dev.tsv --test mine-test.tsv --score-range 0,5 -o runs/mine
  munjang augment --model MODEL --gold mine.tsv --domain sentences.txt --dev mine-dev.tsv -o runs/more
  munjang augment --model MODEL --data DATA --gold korsts --gold-rows 1000 --dev korsts --test korsts -o runs/korsts

no labelled pairs: --domain sentences, and --public pairs that were labelled elsewhere
  munjang augment --model MODEL --data DATA --domain reviews.txt --public korsts --dev korsts -o runs/reviews
  munjang augment --model MODEL --data DATA --domain klue-sts --public korsts --dev korsts --test klue-sts:dev \\
      --strategy semantic,bm25 --balance gold -o runs/klue

a ready cross-encoder labels, and is not trained
  munjang augment --model MODEL --gold mine.tsv --dev mine-dev.tsv --cross-encoder RERANKER -o runs/ready

A set is a file with columns (csv, tsv, jsonl, json, parquet) or the name of a public set in --data; korsts:dev names a
split. A csv from Excel (cp949) will do: --columns a=문장1,b=문장2,score=점수 --score-range 0,5. A domain file is a
sentence a line, or a table: of a public set its labels are not looked at. No silver pair is a sentence with itself,
repeated, mirrored, labelled already, or among the pairs of --dev and --test.
RUN/index.html is the report, RUN/model the model; RUN/N-silver/silver.tsv may be edited: the same command then trains
the bi-encoder again. The same command also goes on where an interrupted one stopped; finished stages are skipped.
"""
