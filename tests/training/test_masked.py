"""Hidden words: which are chosen and what stands for them, the exact mean of the loss, and models that learn by it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, processors

from munjang.data import Examples
from munjang.encoders import BiEncoder
from munjang.errors import InputError, ModelError
from munjang.nn.bodies import StaticEmbedding
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of
from munjang.nn.heads import Dense
from munjang.nn.packed import to_packed
from munjang.text.tokenizer import Tokenizer
from munjang.training import Task, TrainingSettings, objectives, train
from munjang.training.log import read_log
from munjang.training.masking import Masked, Words, mask_rows
from munjang.training.objectives import MaskedWords
from munjang.training.processes import Processes
from munjang.training.sequences import Sequences
from munjang.training.stepping import Stepper, work_of
from munjang.training.trainee import Trainee
from munjang.training.updates import Updates
from training import material
from training.material import bi, cross, plain, same, sentences, telling, weights

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["한국", "##어", "##를", "말", "##한다", "play", "##ing", "the", "guitar", ",", "가", "나", "다", "라", "마"]


def framed(made: tokenizers.Tokenizer, begin: str = "[CLS]", end: str = "[SEP]") -> Tokenizer:
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(name, made.token_to_id(name)) for name in (begin, end)],
    )
    return Tokenizer(made, max_length=64)


def word_pieces() -> Tokenizer:
    vocabulary = {piece: i for i, piece in enumerate([*SPECIAL, *PIECES])}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return framed(made)


def sentence_pieces() -> Tokenizer:
    pieces = ["<s>", "</s>", "<unk>", "<mask>", "▁한국", "어", "를", "▁말", "한다", "▁play", "ing", "▁the", "▁"]
    made = tokenizers.Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=2))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return framed(made, "<s>", "</s>")


def byte_pieces() -> Tokenizer:
    pieces = ["<s>", "</s>", "<mask>", *"Ġplayingth", "Ġp", "Ġt", "in"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, [("Ġ", "p"), ("Ġ", "t"), ("i", "n")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return framed(made, "<s>", "</s>")


def words_of(tokenizer: Tokenizer) -> Words:
    return Words.of(tokenizer, tokenizer.vocab_size)


def hidden(sequences: Sequences, words: Words, *, rows: Any = None, step: int = 0, **more: Any) -> Masked:
    rows = np.arange(sequences.rows) if rows is None else rows
    return mask_rows(sequences, rows, words, **({"share": 0.15, "numbers": (1, step)} | more))


# --- which words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text", "beginnings"),
    [
        (word_pieces, "한국어를 말한다, playing", ["한국", "말", ",", "play"]),
        (sentence_pieces, "한국어를 말한다 playing the", ["▁한국", "▁말", "▁play", "▁the"]),
        (byte_pieces, "play thing play", ["p", "Ġt", "Ġp"]),  # the first has no space before it
    ],
)
def test_words_are_hidden_whole(make: Any, text: str, beginnings: list[str]) -> None:
    tokenizer = make()
    words = words_of(tokenizer)
    tokens = tokenizer.encode([text])
    pieces = [tokenizer.backend.id_to_token(int(i)) for i in tokens.ids]
    sequences = Sequences([tokens])
    groups: set[tuple[int, ...]] = set()
    for step in range(400):
        where = hidden(sequences, words, step=step).where.tolist()
        assert not {0, len(pieces) - 1} & set(where)  # the frame
        if where and len(where) < len(pieces) - 2:
            runs = np.split(np.array(where), np.flatnonzero(np.diff(where) != 1) + 1)
            groups |= {tuple(run.tolist()) for run in runs}
    starts = sorted({run[0] for run in groups})
    assert [pieces[start] for start in starts] == beginnings
    ends = {run[-1] + 1 for run in groups}
    assert ends == {*starts[1:], len(pieces) - 1}  # a run ends where a word does


def test_shares() -> None:
    """15 % of the words; of their pieces 80 % masked, 10 % others, 10 % as they were; special tokens never."""
    tokenizer = word_pieces()
    words = words_of(tokenizer)
    text = "한국어를 말한다, playing the guitar 모르는 가 나 다"
    sequences = Sequences([tokenizer.encode([text] * 2000)])
    found = hidden(sequences, words)
    ids, _ = sequences.at(np.arange(sequences.tokens))
    unknown = tokenizer.backend.token_to_id("[UNK]")
    assert np.count_nonzero(ids == unknown) == 2000
    assert not np.isin(found.labels, [tokenizer.backend.token_to_id(name) for name in SPECIAL]).any()
    assert np.array_equal(ids[found.where], found.labels)
    untouched = np.ones(len(ids), np.bool_)
    untouched[found.where] = False
    assert np.array_equal(found.ids[untouched], ids[untouched])
    assert len(found.where) / np.count_nonzero(~words.special[ids]) == pytest.approx(0.15, abs=0.01)
    now = found.ids[found.where]
    assert np.mean(now == words.mask) == pytest.approx(0.8, abs=0.02)
    assert np.mean(now == found.labels) == pytest.approx(0.1 + 0.1 / len(PIECES), abs=0.015)
    drawn = now[(now != words.mask) & (now != found.labels)]
    assert set(drawn.tolist()) == set(words.ordinary.tolist())  # any other piece, and no special one
    assert np.bincount(drawn)[words.ordinary].min() > 0.4 * len(drawn) / len(PIECES)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_hidden_depends_on_nothing_else(data: st.DataObject) -> None:
    """The same words of a row, in whatever company and order; other ones with another seed or step."""
    tokenizer = material.tiny_parts().tokenizer
    assert isinstance(tokenizer, Tokenizer)
    words = words_of(tokenizer)
    sequences = Sequences([tokenizer.encode(sentences(20, 1))])
    rows = np.array(data.draw(st.lists(st.integers(0, 19), min_size=1, max_size=20, unique=True)))
    sort = data.draw(st.booleans())
    numbers = data.draw(st.tuples(st.integers(0, 2**63), st.integers(0, 10**6)))

    def by_place(rows: Any, sort: bool) -> dict[int, tuple[int, int]]:
        masked = hidden(sequences, words, rows=rows, numbers=numbers, sort=sort, share=0.5)
        _, places, _ = sequences.lay_out(rows, sort=sort)
        now = masked.ids[masked.where].tolist()
        return dict(zip(places[masked.where].tolist(), zip(masked.labels.tolist(), now, strict=True), strict=True))

    alone: dict[int, tuple[int, int]] = {}
    for row in rows:
        alone |= by_place(np.array([row]), False)
    assert by_place(rows, sort) == alone


def test_other_steps_and_seeds_hide_other_words() -> None:
    tokenizer = word_pieces()
    sequences = Sequences([tokenizer.encode(["한국어를 말한다, playing the guitar"] * 30)])
    seen = [tuple(hidden(sequences, words_of(tokenizer), numbers=n).where) for n in [(0, 0), (0, 1), (1, 0), (1, 1)]]
    assert len(set(seen)) == 4


def test_without_a_mask_token() -> None:
    made = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    with pytest.raises(ModelError, match="the tokenizer has no mask token"):
        words_of(Tokenizer(made, max_length=8))
    with pytest.raises(ModelError, match=r"with a row in the model's table \(3 rows\)"):
        Words.of(word_pieces(), 3)  # there is one, but the model does not know it
    named = Tokenizer(made, max_length=8, config={"mask_token": "b"})
    assert words_of(named).mask == 1
    assert words_of(named).ordinary.tolist() == [2]  # neither the mask nor what stands for unknown words


# --- the step --------------------------------------------------------------------------------------------------------


def stepper(model: BiEncoder, examples: Examples, *, budget: int, share: float = 0.3) -> tuple[Stepper, Any]:
    trainee = Trainee(model, "float32", 0.0)
    objective = MaskedWords(share)
    objective.meet(model)
    objective.prepare(examples, trainee.dimension)
    work = work_of(examples, objective, trainee, weight=0.7)
    updates = Updates(trainee, [objective], TrainingSettings())
    trainee.train()
    return Stepper(trainee, updates, Processes(), budget=budget, seed=5), work


def gradients(made: Stepper, work: Any, step: int = 3) -> tuple[float, dict[str, torch.Tensor]]:
    loss = made(work, np.arange(work.sequences.rows), step)
    return float(loss), {name: weight.grad.clone() for name, weight in made.updates.named.items()}  # type: ignore[union-attr]


@pytest.mark.parametrize("translated", [False, True])
def test_the_mean_over_all_hidden_tokens(translated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all positions through the head and plain autograd; whatever the pieces and the blocks of logits."""
    examples = plain(9, translated=translated)
    made, work = stepper(bi(), examples, budget=10**6)
    loss, found = gradients(made, work)
    objective = work.objective
    masked = objective.mask(work.sequences, np.arange(9), numbers=(5, 3))
    assert (masked.segments is not None) == translated
    assert len(masked.lengths) == 9  # a text and its translation are one sequence
    for weight in made.updates.named.values():
        weight.grad = None
    batch = to_packed(masked.ids, masked.lengths, torch.device("cpu"), segments=masked.segments)
    body = made.trainee.body
    assert isinstance(body, Encoder)
    table = body.embeddings.word.weight
    logits = objective.norm(torch.nn.functional.gelu(objective.dense(body(batch)))) @ table.T + objective.bias
    labels = torch.full((len(masked.ids),), -100)
    labels[torch.from_numpy(masked.where)] = torch.from_numpy(masked.labels)
    plainly = 0.7 * torch.nn.functional.cross_entropy(logits, labels)
    plainly.backward()
    assert loss == pytest.approx(float(plainly.detach()), rel=1e-5)
    for name, weight in made.updates.named.items():
        if weight.grad is not None:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=2e-6)
    assert float(found["body.embeddings.word.weight"].abs().max()) > 1e-3
    assert float(found["objective.0.bias"].abs().max()) > 1e-3

    monkeypatch.setattr("munjang.training.stepping._LOGITS", 3 * len(table))  # three tokens at a time
    cut, other = stepper(bi(), examples, budget=30)
    cut_loss, cut_found = gradients(cut, other)
    assert cut_loss == pytest.approx(loss, rel=1e-5)
    for name in found:
        torch.testing.assert_close(
            cut_found[name], found[name], rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_step_without_hidden_words_does_no_harm() -> None:
    """Empty texts, and a share so small that nothing is chosen."""
    empty = Examples("ours", "plain", {"text": ["", " "]})
    for examples, share in ((empty, 0.5), (plain(3), 1e-9)):
        made, work = stepper(bi(), examples, budget=100, share=share)
        loss, found = gradients(made, work)
        assert loss == 0
        assert all(float(gradient.abs().max()) == 0 for gradient in found.values())
        model = bi()
        train(model, [Task(examples, MaskedWords(share))], TrainingSettings(max_steps=3, batch_size=2))
        assert np.isfinite(model.encode(sentences(3))).all()


# --- whole runs ------------------------------------------------------------------------------------------------------


def family(name: str, **more: Any) -> BiEncoder:
    """A tiny body of another family, on the same tokenizer."""
    parts = material.tiny_parts()
    config = {**parts.hf_config, "model_type": name, **more}
    known = family_of(config)
    assert known is not None
    body = Encoder(known.read(config))
    body.initialise(torch.Generator().manual_seed(3))
    return BiEncoder(replace(parts, body=body, hf_config=config), device="cpu", dtype="float32")


FAMILIES: dict[str, Any] = {
    "bert": bi,
    "electra": lambda: family("electra", embedding_size=8),
    "albert": lambda: family("albert", embedding_size=8, num_hidden_groups=1, inner_group_num=1),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_words_are_found_again(name: str, tmp_path: Path) -> None:
    """By the words around them: each of 16 is as frequent as the others, so that guessing has a loss of log 16."""
    model = FAMILIES[name]()
    config = model.parts.body.config
    assert (config.embedding_size == config.hidden) == (name == "bert")
    before = weights(model)
    objective = MaskedWords(0.25)
    settings = TrainingSettings(max_steps=100, batch_size=32, learning_rate=1e-2, dropout=0.0)
    train(model, [Task(telling(), objective)], settings, folder=tmp_path)
    assert last(tmp_path) < 0.75 * math.log(16)
    after = weights(model)
    assert not torch.equal(after["body.embeddings.word.weight"], before["body.embeddings.word.weight"])
    assert objective.dense is not None
    assert objective.dense.out_features == config.embedding_size
    assert np.isfinite(model.encode(sentences(3))).all()
    assert after.keys() == before.keys()  # the head is not part of the model


def test_words_are_found_in_the_translation(tmp_path: Path) -> None:
    """The three words of a text have nothing to do with each other: only the other language tells them."""
    settings = TrainingSettings(max_steps=200, batch_size=32, learning_rate=1e-2, dropout=0.0)
    train(bi(), [Task(telling(translated=True), MaskedWords(0.25))], settings, folder=tmp_path)
    assert last(tmp_path) < 0.75 * math.log(8)  # guessing, where the language is known


def last(folder: Path) -> float:
    """The mean loss of the last ten steps."""
    return float(np.mean([record["loss"] for record in read_log(folder / "log.jsonl") if "loss" in record][-10:]))


def test_an_objective_begins_anew() -> None:
    """The same object in a second run: the same run again."""
    objective, found = MaskedWords(seed=4), []
    for _ in range(2):
        model = bi()
        train(model, [Task(plain(8), objective)], TrainingSettings(max_steps=3, batch_size=4))
        found.append(weights(model))
    assert same(*found)
    other = bi()
    train(other, [Task(plain(8), MaskedWords(seed=5))], TrainingSettings(max_steps=3, batch_size=4))
    assert not same(found[0], weights(other))
    assert objective.settings() == {"share": 0.15, "seed": 4}


def test_in_bfloat16_the_gradient_reaches_the_full_weights() -> None:
    model = bi()
    before = weights(model)
    settings = TrainingSettings(max_steps=3, batch_size=8, learning_rate=1e-3, precision="bfloat16", warm_up=0)
    train(model, [Task(plain(16), MaskedWords(0.4))], settings)
    table = "body.embeddings.word.weight"
    changed = (weights(model)[table] != before[table]).any(dim=1)
    assert int(changed.sum()) == len(changed)  # the softmax looks at every word, also at those that no text has
    assert all(weight.dtype == torch.float32 for weight in model.parts.body.parameters())


def test_what_it_refuses() -> None:
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(InputError, match="share must be between 0 and 1"):
            MaskedWords(share)
    with pytest.raises(InputError, match="MaskedWords does not train a cross-encoder"):
        train(cross(), [Task(plain(), MaskedWords())])
    with pytest.raises(InputError, match="MaskedWords is trained on plain data, but our scores is scored"):
        train(bi(), [Task(material.scored(), MaskedWords())])
    parts = material.tiny_parts()
    static = replace(parts, body=StaticEmbedding(torch.randn(parts.tokenizer.vocab_size, 16)))
    model = BiEncoder(static, device="cpu", dtype="float32")
    with pytest.raises(ModelError, match=r"not a body of type StaticEmbedding: it has no table of words"):
        train(model, [Task(plain(), MaskedWords())])
    assert objectives.MaskedWords is MaskedWords


def test_what_pools_and_projects_stays_as_it_was() -> None:
    """The heads get no gradient from hidden words: weight decay must not wear them down either."""
    parts = material.tiny_parts()
    dense = Dense(parts.pooling.dimension(parts.body.hidden), 8)
    model = BiEncoder(replace(parts, heads=torch.nn.ModuleList([dense])), device="cpu", dtype="float32")
    before = weights(model)
    settings = TrainingSettings(max_steps=3, learning_rate=1e-2, weight_decay=0.5)
    train(model, [Task(plain(), MaskedWords())], settings)
    changed = {name for name, weight in weights(model).items() if not torch.equal(weight, before[name])}
    assert changed
    assert not {name for name in changed if name.startswith("head.")}
