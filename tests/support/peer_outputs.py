"""Outputs of sentence-transformers for saved models; run by an interpreter whose environment has a release of it.

    PYTHON peer_outputs.py JOBS.json OUTPUTS.json

JOBS: a list of {"folder", "kind": "bi" or "cross", "inputs"}. OUTPUTS: {"releases": {...}, "outputs": [...]}, one entry
for each job: a list of vectors or scores, or {"error": ...}. Needs nothing but sentence-transformers itself.
"""

import json
import sys
import traceback


def output(folder, kind, inputs):
    import sentence_transformers

    try:
        if kind == "cross":
            scorer = sentence_transformers.CrossEncoder(folder, device="cpu")
            return scorer.predict([tuple(pair) for pair in inputs], show_progress_bar=False).tolist()
        encoder = sentence_transformers.SentenceTransformer(folder, device="cpu")
        return encoder.encode(inputs, show_progress_bar=False).tolist()
    except Exception as error:  # of whatever kind: it is the result of this job
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def main(jobs_path, outputs_path):
    import sentence_transformers
    import torch
    import transformers

    torch.set_num_threads(1)
    with open(jobs_path, encoding="utf-8") as file:
        outputs = [output(**job) for job in json.load(file)]
    releases = {"sentence-transformers": sentence_transformers.__version__, "transformers": transformers.__version__}
    with open(outputs_path, "w", encoding="utf-8") as file:
        json.dump({"releases": releases, "outputs": outputs}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
