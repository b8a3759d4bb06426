"""What `munjang train` says about itself: every recipe, the rows it takes, examples."""

from __future__ import annotations

from munjang.recipes.defaults import RecipeName

HELP: dict[RecipeName, str] = {
    "nli": "a bi-encoder from entailment, neutral, contradiction",
    "sts": "a bi-encoder from scored pairs",
    "triplet": "a bi-encoder from anchor, positive, negative",
    "contrastive": "a bi-encoder from pairs that belong together, or are marked same and different",
    "cross_nli": "a cross-encoder that labels pairs",
    "cross_sts": "a cross-encoder that scores pairs",
    "cross_rank": "a reranker, from queries with documents",
}
_LABELLED = "two texts and a label; labels that are numbers need --labels entailment,neutral,contradiction"
_SCORED = "two texts and a score; of scores that are not 0..1, --score-range says the range"
ROWS: dict[RecipeName, str] = {  # what a row of a file is
    "nli": _LABELLED,
    "sts": _SCORED,
    "triplet": "an anchor, a positive, a negative (or pairs with labels of NLI)",
    "contrastive": "an anchor and a positive (more columns are negatives), or two texts and a label, with\n"
    "  --labels different,same where these are 0 and 1",
    "cross_nli": _LABELLED,
    "cross_sts": _SCORED,
    "cross_rank": "a query, a document and its relevance, a row for every document; or anchor, positive, negative",
}
COLUMNS: dict[RecipeName, str] = {  # an example of --columns
    "nli": "a=전제,b=가설,label=라벨",
    "sts": "a=문장1,b=문장2,score=점수",
    "triplet": "anchor=기준,positive=같은말,negative=다른말",
    "contrastive": "anchor=질문,positive=답변",
    "cross_nli": "a=전제,b=가설,label=라벨",
    "cross_sts": "a=문장1,b=문장2,score=점수",
    "cross_rank": "query=질의,document=문서,relevance=관련도",
}
EXAMPLES = """\
examples:
  munjang train sts --model MODEL --data DATA --train korsts --dev korsts --test korsts --output runs/sts
  munjang train sts --model MODEL --train mine.tsv --columns a=문장1,b=문장2,score=점수 --score-range 0,5 -o runs/mine
  munjang train nli --model MODEL --data DATA --train klue-nli --dev klue-nli --objective ranking -o runs/nli
  munjang train chain nli,sts --model MODEL --data DATA --train nli=klue-nli --train sts=korsts --dev sts=korsts \\
      --test sts=korsts -o runs/chain
  munjang train --config runs/sts/recipe.json --output runs/sts-again

A set is a file (csv, tsv, jsonl, json, parquet) or the name of a public set in --data: korsts is its training,
development or test split, as the option says; korsts:dev names a split. Several --train are trained together.
The same command goes on where an interrupted one stopped. RUN/report.html shows what happened.
"""
CHAIN = """\
Each stage goes on with the model of the one before; a cross-encoder keeps its body and gets a new head where the
stages need different outputs. Values may be given for one stage: --train nli=klue-nli --epochs sts=4; a value without
a stage is for all of them.
"""
