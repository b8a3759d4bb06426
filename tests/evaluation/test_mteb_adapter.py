"""Munjang inside mteb: small tasks of our own, without a network, beside sentence-transformers and our evaluators.

mteb is large and no dependency: where it is not installed these tests are skipped.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import munjang
from evaluation.sample import PAIRS, CrossStub, scored, topics
from munjang.data import Examples, Retrieval
from munjang.encoders import BiEncoder, CrossEncoder
from munjang.errors import InputError
from munjang.evaluation import RerankingEvaluator, RetrievalEvaluator, StsEvaluator
from munjang.evaluation.mteb_adapter import MtebModel, MtebReranker


def batches(texts: list[str], size: int = 5) -> list[dict[str, list[str]]]:
    return [{"text": texts[start : start + size]} for start in range(0, len(texts), size)]


def test_batches_become_vectors_in_order(model: BiEncoder) -> None:
    texts = topics().columns["text"]
    adapted = MtebModel(model)
    for role in (None, "query", "document"):
        found = adapted.encode(batches(texts), prompt_type=role, batch_size=3, task_metadata=None)
        assert np.allclose(found, model.encode(texts), atol=1e-6)
    assert np.allclose(adapted.similarity(found, found), model.similarity(found), atol=1e-6)
    assert np.allclose(adapted.similarity_pairwise(found, found), 1, atol=1e-5)


def test_a_single_vector_counts_as_one_row(model: BiEncoder) -> None:
    adapted = MtebModel(model)
    one, *others = adapted.encode([{"text": ["a cat", "a dog", "a stone"]}])
    assert float(adapted.similarity(one, one)) == pytest.approx(1, abs=1e-5)
    assert adapted.similarity(one, torch.tensor(np.stack(others))).shape == (1, 2)
    assert adapted.similarity(one.astype(np.float16), one.astype(np.float16)).dtype == torch.float32
    assert float(adapted.similarity_pairwise(torch.tensor(one), one)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("batch", [{"image": ["x"]}, {"text": ["a cat"], "image": ["x"]}])
def test_inputs_other_than_text_are_refused(model: BiEncoder, batch: dict[str, list[str]]) -> None:
    with pytest.raises(InputError, match="text only"):
        MtebModel(model).encode([batch])


def test_quantized_vectors_are_refused(model: BiEncoder) -> None:
    with pytest.raises(InputError, match="int8"):
        MtebModel(model).encode([{"text": ["a cat"]}], precision="int8")


def test_pairs_become_scores() -> None:
    table: dict[tuple[str, str], object] = {(a, b): score for a, b, score in PAIRS}
    a, b, scores = map(list, zip(*PAIRS, strict=True))
    found = MtebReranker(CrossStub(table)).predict(batches(a), batches(b), task_metadata=None)  # type: ignore[arg-type]
    assert found == pytest.approx(scores)
    with pytest.raises(InputError, match="one score per pair"):
        MtebReranker(CrossStub(labels=("no", "yes")))  # type: ignore[arg-type]


# One prompt for each kind of key that mteb knows, and keys that it ignores.
PROMPTS = {
    "query": "question: ",
    "document": "text: ",
    "STS": "similar: ",
    "STS12": "captions: ",
    "Retrieval-query": "search: ",
    "NFCorpus-document": "medicine: ",
    "Classification": "class: ",
    "Summarization": "summary: ",
    "MockPairClassificationTask": "unknown task: ",
    "passage": "unknown role: ",
}


@pytest.fixture(scope="module")
def with_prompts(minilm_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that has prompts."""
    folder = tmp_path_factory.mktemp("prompts") / "model"
    prompted = munjang.load(minilm_path, device="cpu", dtype="float32")
    prompted.prompts.update(PROMPTS)
    prompted.save(folder)
    return folder


def both(folder: Path) -> tuple[MtebModel, Any]:
    """The folder in our adapter and in mteb's wrapper, each with `seen`: the vectors that `encode` returned."""
    wrapper = pytest.importorskip("mteb.models").SentenceTransformerEncoderWrapper

    class Ours(MtebModel):
        def encode(self, inputs: Any, **options: Any) -> Any:
            self.seen.append(super().encode(inputs, **options))
            return self.seen[-1]

    class Theirs(wrapper):  # type: ignore[misc, valid-type]  # a class of an optional package
        def encode(self, inputs: Any, **options: Any) -> Any:
            self.seen.append(super().encode(inputs, **options))
            return self.seen[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mteb warns about the keys that it ignores
        theirs = Theirs(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    ours = Ours(munjang.load(folder, device="cpu", dtype="float32"))
    ours.seen, theirs.seen = [], []
    return ours, theirs


def assert_same_vectors(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 0
    for left, right in zip(ours, theirs, strict=True):
        assert np.abs(np.asarray(left) - np.asarray(right)).max() <= 1e-5


@pytest.mark.mteb
@pytest.mark.filterwarnings("ignore:Task name .* is not valid")
def test_prompts_are_those_of_mtebs_wrapper(with_prompts: Path) -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from torch.utils.data import DataLoader

    ours, theirs = both(with_prompts)
    texts = DataLoader(datasets.Dataset.from_dict({"text": topics().columns["text"]}), batch_size=4)  # type: ignore[arg-type]
    plain = ours.model.encode(topics().columns["text"], prompt="")
    for name in ("STS12", "KLUE-STS", "NFCorpus", "SciFact", "SummEval", "Banking77Classification", "FarsTail"):
        task = mteb.get_task(name).metadata
        for role in (None, mteb.types.PromptType.query, mteb.types.PromptType.document):
            options = {"task_metadata": task, "hf_split": "test", "hf_subset": "default", "prompt_type": role}
            ours.encode(texts, **options)
            theirs.encode(texts, **options, show_progress_bar=False)
    assert_same_vectors(ours.seen, theirs.seen)
    assert sum(np.abs(vectors - plain).max() > 0.01 for vectors in ours.seen) == 18  # all but three have a prompt
    a, b = ours.seen[0], ours.seen[4]
    assert torch.allclose(ours.similarity(a, b), theirs.similarity(a, b), atol=1e-5)
    assert torch.allclose(ours.similarity_pairwise(a, b), theirs.similarity_pairwise(a, b), atol=1e-5)


@pytest.mark.mteb
@pytest.mark.filterwarnings("ignore:Task name .* is not valid")
@pytest.mark.parametrize(
    "kind",
    [
        "BitextMiningTask",
        "ClassificationTask",
        "ClusteringTask",
        "InstructionReranking",
        "InstructionRetrieval",
        "MultilabelClassification",
        "PairClassificationTask",
        "RegressionTask",
        "RerankingTask",
        "RetrievalDialogTask",
        "RetrievalTask",
        "STSTask",
        "SummarizationTask",
        "TextZeroShotClassificationTask",
    ],
)
def test_mtebs_mock_tasks_give_the_vectors_and_scores_of_its_wrapper(kind: str, with_prompts: Path) -> None:
    mteb = pytest.importorskip("mteb")
    mocks = pytest.importorskip("mteb.mocks")
    ours, theirs = both(with_prompts)
    scores = [run(mteb, model, getattr(mocks, f"Mock{kind}")()) for model in (ours, theirs)]
    assert_same_vectors(ours.seen, theirs.seen)
    assert scores[0]["main_score"] == pytest.approx(scores[1]["main_score"], abs=1e-5)


def metadata(mteb: Any, name: str, kind: str, main: str) -> Any:
    return mteb.TaskMetadata(
        name=name,
        description="Written for a test.",
        dataset={"path": "munjang/none", "revision": "1"},
        type=kind,
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main,
    )


def run(mteb: Any, model: Any, task: Any) -> dict[str, Any]:
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False)
    return result.task_results[0].scores["test"][0]


@pytest.mark.mteb
def test_mtebs_sts_gives_our_numbers(model: BiEncoder, peer: SentenceTransformer) -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.sts import AbsTaskSTS

    a, b, gold = map(list, zip(*PAIRS, strict=True))

    class OurSts(AbsTaskSTS):
        metadata = metadata(mteb, "OurSts", "STS", "cosine_spearman")
        min_score, max_score = 0, 1

        def load_data(self, **_: object) -> None:
            rows = datasets.Dataset.from_dict({"sentence1": a, "sentence2": b, "score": gold})
            self.dataset = datasets.DatasetDict({"test": rows})
            self.data_loaded = True

    ours = run(mteb, MtebModel(model), OurSts())
    theirs = run(mteb, peer, OurSts())
    assert ours["cosine_spearman"] == pytest.approx(theirs["cosine_spearman"], abs=1e-5)
    assert ours["cosine_spearman"] == pytest.approx(StsEvaluator(scored())(model).value, abs=1e-5)
    assert ours["main_score"] == ours["cosine_spearman"]


@pytest.mark.mteb
def test_mtebs_classification(model: BiEncoder, peer: SentenceTransformer) -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.classification import AbsTaskClassification

    examples = topics()

    class OurTopics(AbsTaskClassification):
        metadata = metadata(mteb, "OurTopics", "Classification", "accuracy")
        samples_per_label = 4
        n_experiments = 2

        def load_data(self, **_: object) -> None:
            rows = datasets.Dataset.from_dict(
                {"text": examples.columns["text"], "label": [int(label) for label in examples.targets]}
            )
            self.dataset = datasets.DatasetDict({"train": rows, "test": rows})
            self.data_loaded = True

    ours, theirs = run(mteb, MtebModel(model), OurTopics()), run(mteb, peer, OurTopics())
    assert ours["accuracy"] == pytest.approx(theirs["accuracy"])
    assert ours["accuracy"] > 0.7


@pytest.mark.mteb
def test_mtebs_retrieval_and_reranking(model: BiEncoder, cross: CrossEncoder) -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    texts = topics().columns["text"]
    data = Retrieval(
        "ours",
        {"q0": "something to eat", "q1": "games and athletes"},
        {f"d{place}": text for place, text in enumerate(texts)},
        {"q0": {"d0": 1, "d1": 1, "d2": 1}, "q1": {"d8": 1, "d9": 1}},
    )

    class OurCorpus(AbsTaskRetrieval):
        metadata = metadata(mteb, "OurCorpus", "Retrieval", "ndcg_at_10")
        top_ranked: dict[str, list[str]] | None = None

        def load_data(self, **_: object) -> None:
            corpus = [{"id": place, "text": text, "title": ""} for place, text in data.corpus.items()]
            queries = [{"id": place, "text": text} for place, text in data.queries.items()]
            split = {
                "corpus": datasets.Dataset.from_list(corpus),
                "queries": datasets.Dataset.from_list(queries),
                "relevant_docs": data.relevant,
                "top_ranked": self.top_ranked,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    ours = RetrievalEvaluator(data)(model)
    found = run(mteb, MtebModel(model), OurCorpus())
    assert found["ndcg_at_10"] == pytest.approx(ours.values["ndcg@10"], abs=1e-4)
    assert found["recall_at_5"] == pytest.approx(ours.values["recall@5"], abs=1e-4)

    candidates = {
        query: list(dict.fromkeys([*(f"d{n}" for n in range(4, 14)), *data.relevant[query]])) for query in data.queries
    }

    class OurLists(OurCorpus):
        metadata = metadata(mteb, "OurLists", "Reranking", "ndcg_at_10")
        top_ranked = candidates

    reranked = run(mteb, MtebReranker(cross), OurLists())
    rows = [
        (data.queries[query], data.corpus[document], float(document in data.relevant[query]), group)
        for group, query in enumerate(data.queries)
        for document in candidates[query]
    ]
    query, document, grade, group = map(list, zip(*rows, strict=True))
    columns = {"query": query, "document": document}
    lists = Examples("lists", "ranked", columns, np.array(grade, np.float32), groups=np.array(group))
    assert reranked["ndcg_at_10"] == pytest.approx(RerankingEvaluator(lists)(cross).value, abs=1e-4)


@pytest.mark.mteb
def test_mteb_sees_the_protocols_and_the_description(model: BiEncoder, cross: CrossEncoder) -> None:
    pytest.importorskip("mteb")
    from mteb.models import CrossEncoderProtocol, EncoderProtocol

    adapted = MtebModel(model, name="ours/small", revision="7")
    assert isinstance(adapted, EncoderProtocol)
    assert not isinstance(adapted, CrossEncoderProtocol)
    assert isinstance(MtebReranker(cross), CrossEncoderProtocol)
    assert not isinstance(MtebReranker(cross), EncoderProtocol)
    meta = adapted.mteb_model_meta
    assert (meta.name, meta.revision, meta.embed_dim, meta.max_tokens) == ("ours/small", "7", 384, 256)
    assert (meta.n_parameters, meta.modalities) == (model.describe()["parameters"], ["text"])
    assert "/" in MtebModel(model).mteb_model_meta.name


@pytest.mark.mteb
def test_results_of_other_prompts_have_another_revision(minilm_path: Path) -> None:
    """mteb reuses the results of a model with the same name and revision."""
    pytest.importorskip("mteb")
    model = munjang.load(minilm_path, device="cpu")
    revisions = [MtebModel(model).mteb_model_meta.revision]
    model.prompts["STS"] = "similar: "
    revisions.append(MtebModel(model).mteb_model_meta.revision)
    model.truncate_dim = 64
    revisions.append(MtebModel(model).mteb_model_meta.revision)
    assert len(set(revisions)) == 3
    assert MtebModel(model).mteb_model_meta.revision == revisions[-1]


def test_without_mteb_the_command_is_named(model: BiEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mteb", None)
    for name in [name for name in sys.modules if name.startswith("mteb.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'munjang\[mteb\]'"):
        _ = MtebModel(model).mteb_model_meta
