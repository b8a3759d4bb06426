"""The sentences of the cards in English and Korean, and the commands that they show."""

from __future__ import annotations

from models.ko_en_0_1.words import Language

WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "other": "한국어",
        "summary bi": "A small sentence encoder for Korean and English: texts go in, vectors come out, and texts that "
        "mean the same get similar vectors, in either language. It lies in the package Munjang and needs no network.",
        "summary cross": "A small cross-encoder for Korean and English: it reads two texts together and gives the "
        "probability that the second answers the first. Of sentence pairs its score says which are more alike, and is "
        "no probability. It lies in the package Munjang and reorders what a bi-encoder found.",
        "what": "What it is",
        "load": "How to use it",
        "scores": "Scores",
        "two-stage": "The reranker over the first hits of a bi-encoder:",
        "thresholds": "Thresholds",
        "data": "Training data",
        "teachers": "Teachers",
        "making": "How it was made",
        "overlap": "Overlap of training text and evaluation sets",
        "overlap text": "Rows of an evaluation set that share a text with the training text, and the score without "
        "them. Normalised: without case, spaces and punctuation. What others had trained the teachers on is not "
        "counted.",
        "speed": "Speed",
        "limits": "Limits",
        "further": "How to fine-tune it further",
        "further text": "Every recipe takes it as a start. Thresholds are dropped by training, because they belong to "
        "these weights.",
        "export": "How to export it",
        "export text": "Its weights lie in the package as int8 rows, which other libraries do not read. An export is "
        "an ordinary folder of sentence-transformers, or ONNX.",
        "licence": "Licence",
        "name": "Name",
        "use": "For",
        "source": "Source",
        "share alike": "These sets are under CC BY-SA and are named as it asks: {sets}. No text of them is in the "
        "model's files.",
        "stage": "Stage",
        "seconds": "Seconds",
        "settings": "Settings",
        "made": "{seconds} seconds in all, seed {seed}",
        "chosen": "It was chosen by these development sets, whose scores flatter for that reason:",
        "texts": "Texts",
        "per second": "Per second",
        "device": "Device",
        "no speed": "Not measured yet. `python -m benchmarks.encode --model FOLDER` measures it.",
        "licence text": "The weights are under {licence}. The licences of data and teachers stand above.",
    },
    "ko": {
        "other": "English",
        "summary bi": "한국어와 영어를 위한 작은 문장 인코더입니다. 글을 넣으면 벡터가 나오고, 뜻이 같은 글은 언어가 "
        "달라도 비슷한 벡터를 얻습니다. 패키지 Munjang 안에 들어 있어 네트워크가 필요 없습니다.",
        "summary cross": "한국어와 영어를 위한 작은 크로스 인코더입니다. 두 글을 함께 읽고, 둘째 글이 첫째 글에 대한 "
        "답일 확률을 계산합니다. 문장 쌍에서는 점수가 어느 쌍이 더 비슷한지를 말할 뿐 확률이 아닙니다. 패키지 Munjang "
        "안에 들어 있으며 바이 인코더가 찾은 것을 재정렬합니다.",
        "what": "어떤 모델인가",
        "load": "사용법",
        "scores": "점수",
        "two-stage": "바이 인코더가 먼저 찾은 것을 재정렬한 결과:",
        "thresholds": "임계값",
        "data": "학습 데이터",
        "teachers": "교사 모델",
        "making": "만든 방법",
        "overlap": "학습 데이터와 평가 데이터의 겹침",
        "overlap text": "학습 데이터와 같은 글이 들어 있는 평가 행의 수와, 그 행을 뺀 점수입니다. 정규화: 대소문자, "
        "띄어쓰기, 문장 부호를 무시합니다. 교사 모델이 다른 이들에게서 배운 글은 세지 않았습니다.",
        "speed": "속도",
        "limits": "한계",
        "further": "이어서 미세 조정하기",
        "further text": "모든 학습 방법이 이 모델에서 시작할 수 있습니다. 임계값은 이 가중치에만 맞는 값이므로 "
        "학습하면 지워집니다.",
        "export": "내보내기",
        "export text": "가중치는 패키지 안에 int8 행으로 들어 있어 다른 라이브러리는 읽지 못합니다. 내보내면 "
        "일반적인 sentence-transformers 폴더나 ONNX 파일이 됩니다.",
        "licence": "라이선스",
        "name": "이름",
        "use": "쓰임",
        "source": "출처",
        "share alike": "다음 데이터는 CC BY-SA이며 그 조건대로 이름을 밝힙니다: {sets}. 모델 파일에는 이 데이터의 글이 "
        "들어 있지 않습니다.",
        "stage": "단계",
        "seconds": "초",
        "settings": "설정",
        "made": "모두 {seconds}초, 시드 {seed}",
        "chosen": "다음 개발 데이터로 골랐으므로 이 점수는 실제보다 좋게 나옵니다:",
        "texts": "글",
        "per second": "초당",
        "device": "장치",
        "no speed": "아직 측정하지 않았습니다. `python -m benchmarks.encode --model FOLDER`로 측정합니다.",
        "licence text": "가중치의 라이선스는 {licence}입니다. 데이터와 교사 모델의 라이선스는 위에 있습니다.",
    },
}
LIMITS: dict[Language, dict[str, tuple[str, ...]]] = {
    "en": {
        "both": (
            "It knows Korean and English. Other languages fall apart into letters, and their scores mean little.",
            "It is small. Large models understand rare words, long reasoning and special fields better.",
            "Texts that are longer than it reads are cut, and Munjang says so; split them with `munjang.chunks`.",
            "It learned from public texts and has their biases. Do not let it decide about people.",
        ),
        "bi": (
            "A cosine is no probability. Use the thresholds that lie with the model, or calibrate your own.",
            "Negation and numbers change the meaning of a sentence more than they change its vector.",
        ),
        "cross": (
            "Its probabilities hold for lists like those that it was calibrated on; elsewhere the order stays, but the "
            "numbers may be off. `CrossEncoder.calibrate` fits them to your own pairs.",
            "It reads every pair anew: let a bi-encoder choose a hundred candidates first.",
        ),
    },
    "ko": {
        "both": (
            "한국어와 영어만 압니다. 다른 언어는 글자 단위로 쪼개져 점수에 큰 의미가 없습니다.",
            "작은 모델입니다. 드문 낱말, 긴 추론, 전문 분야는 큰 모델이 더 잘 이해합니다.",
            "읽을 수 있는 길이보다 긴 글은 잘리며 Munjang이 알려 줍니다. `munjang.chunks`로 나누십시오.",
            "공개된 글로 학습했으므로 그 편향도 지니고 있습니다. 사람에 대한 결정을 맡기지 마십시오.",
        ),
        "bi": (
            "코사인은 확률이 아닙니다. 모델과 함께 있는 임계값을 쓰거나 직접 보정하십시오.",
            "부정 표현이나 숫자가 바뀌면 뜻은 크게 달라지지만 벡터는 그만큼 달라지지 않습니다.",
        ),
        "cross": (
            "확률은 보정에 쓴 것과 비슷한 목록에서 맞습니다. 다른 곳에서는 순서는 그대로이나 값이 어긋날 수 있습니다. "
            "`CrossEncoder.calibrate`로 자기 데이터에 맞출 수 있습니다.",
            "쌍마다 새로 읽습니다. 먼저 바이 인코더로 후보 백 개쯤을 고르십시오.",
        ),
    },
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "train bi": (
        "munjang train sts --model {name} --train pairs.tsv --dev dev.tsv --output runs/mine",
        "munjang train contrastive --model {name} --train questions.jsonl --output runs/mine",
        "munjang evaluate runs/mine/model {name} --sts test.tsv",
    ),
    "train cross": (
        "munjang train cross-rank --model {name} --train queries.jsonl --dev dev.jsonl --output runs/mine",
        "munjang train cross-sts --model {name} --train pairs.tsv --dev dev.tsv --output runs/mine",
        "munjang evaluate runs/mine/model {name} --ranked test.jsonl",
    ),
    "export bi": (
        "munjang export {name} -o exported --format sentence-transformers --dtype float16",
        "munjang export {name} -o exported-onnx --format onnx",
    ),
    "export cross": (
        "munjang export {name} -o exported --format sentence-transformers --dtype float16",
        "munjang export {name} -o exported-onnx --format onnx",
    ),
}


def load_snippet(name: str, *, cross: bool) -> str:
    """How to use the model, without a network."""
    lines: tuple[str, ...]
    if cross:
        lines = (
            f'reranker = munjang.load_reranker("{name}")',
            'documents = ["서울의 지하철은 첫차가 다섯 시 반에 떠난다.", "The bank raised its rates."]',
            'for hit in reranker.rank("지하철 첫차는 몇 시인가요?", documents):',
            '    print(f"{hit.score:.2f}  {hit.text}")',
        )
    else:
        lines = (
            f'model = munjang.load("{name}")',
            'vectors = model.encode(["비가 온다.", "It is raining.", "주가가 올랐다."])',
            "print(munjang.similarity(vectors, vectors))",
        )
    return "```python\nimport munjang\n\n" + "\n".join(lines) + "\n```"
