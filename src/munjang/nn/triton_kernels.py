"""Triton source of `munjang.nn.kernels`, which imports this module when a kernel is first called."""

# mypy: ignore-errors
# Triton compiles these functions from their source: annotations other than tl.constexpr would mean something else.

import triton
import triton.language as tl


@triton.jit
def attention(
    qkv,  # [total, 3, HEADS, SIZE]
    offsets,  # [n + 1]
    bias,  # [HEADS, 2 * longest - 1]
    out,  # [total, HEADS, SIZE]
    scale,
    bias_centre,
    bias_stride,
    window,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    KEYS: tl.constexpr,
    BIAS: tl.constexpr,
    WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program: BLOCK queries of one head of one sequence over all keys, with a running softmax."""
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(offsets + sequence)
    length = tl.load(offsets + sequence + 1) - start
    if part * BLOCK < length:
        row: tl.constexpr = 3 * HEADS * SIZE
        rows = part * BLOCK + tl.arange(0, BLOCK)
        columns = tl.arange(0, PADDED)
        base = qkv + start.to(tl.int64) * row + head * SIZE
        query = tl.load(
            base + rows[:, None] * row + columns[None, :],
            mask=(rows[:, None] < length) & (columns[None, :] < SIZE),
            other=0.0,
        )
        maximum = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        mixed = tl.zeros([BLOCK, PADDED], tl.float32)
        first = 0
        last = length
        if WINDOW:
            first = tl.maximum(0, (part * BLOCK - window) // KEYS * KEYS)
            last = tl.minimum(length, (part + 1) * BLOCK + window)
        for begin in range(first, last, KEYS):
            keys = begin + tl.arange(0, KEYS)
            here = (keys[:, None] < length) & (columns[None, :] < SIZE)
            key = tl.load(base + HEADS * SIZE + keys[:, None] * row + columns[None, :], mask=here, other=0.0)
            score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
            seen = keys[None, :] < length
            if BIAS:
                distance = keys[None, :] - rows[:, None]
                near = seen & (rows[:, None] < length)
                score += tl.load(bias + head * bias_stride + distance + bias_centre, mask=near, other=0.0).to(
                    tl.float32
                )
            if WINDOW:
                distance = keys[None, :] - rows[:, None]
                seen = seen & (distance <= window) & (distance >= -window)
            score = tl.where(seen, score, float("-inf"))
            new_maximum = tl.maximum(maximum, tl.max(score, 1))
            # A row may have no key yet (its window begins later): -inf minus -inf would be NaN.
            anchor = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
            weight = tl.exp(score - anchor[:, None])
            decay = tl.exp(maximum - anchor)
            total = total * decay + tl.sum(weight, 1)
            value = tl.load(base + 2 * HEADS * SIZE + keys[:, None] * row + columns[None, :], mask=here, other=0.0)
            mixed = mixed * decay[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
            maximum = new_maximum
        result = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
        target = out + (start.to(tl.int64) + rows[:, None]) * (HEADS * SIZE) + head * SIZE + columns[None, :]
        tl.store(
            target,
            result.to(out.dtype.element_ty),
            mask=(rows[:, None] < length) & (columns[None, :] < SIZE),
        )


@triton.jit
def _normalised(x, mask, weight, bias, columns, width, eps, BIAS: tl.constexpr):
    mean = tl.sum(x, 0) / width
    centred = tl.where(mask, x - mean, 0.0)
    scaled = centred / tl.sqrt(tl.sum(centred * centred, 0) / width + eps)
    y = scaled * tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    if BIAS:
        y += tl.load(bias + columns, mask=mask, other=0.0).to(tl.float32)
    return y


@triton.jit
def add_norm(x, residual, weight, bias, width, eps, BLOCK: tl.constexpr, RESIDUAL: tl.constexpr, BIAS: tl.constexpr):
    """One program: one row."""
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    value = tl.load(x + row + columns, mask=mask, other=0.0).to(tl.float32)
    if RESIDUAL:
        value += tl.load(residual + row + columns, mask=mask, other=0.0).to(tl.float32)
    y = _normalised(value, mask, weight, bias, columns, width, eps, BIAS)
    tl.store(x + row + columns, y.to(x.dtype.element_ty), mask=mask)


@triton.jit
def embed_norm(
    ids,
    positions,
    segments,
    words,
    position_table,
    segment_table,
    weight,
    bias,
    out,
    position_offset,
    width,
    eps,
    BLOCK: tl.constexpr,
    POSITIONS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SEGMENT_IDS: tl.constexpr,
    BIAS: tl.constexpr,
):
    """One program: one token."""
    token = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    word = tl.load(ids + token).to(tl.int64)
    value = tl.load(words + word * width + columns, mask=mask, other=0.0).to(tl.float32)
    if POSITIONS:
        position = (tl.load(positions + token) + position_offset).to(tl.int64)
        value += tl.load(position_table + position * width + columns, mask=mask, other=0.0).to(tl.float32)
    if SEGMENTS:
        segment = 0
        if SEGMENT_IDS:
            segment = tl.load(segments + token)
        value += tl.load(segment_table + segment * width + columns, mask=mask, other=0.0).to(tl.float32)
    y = _normalised(value, mask, weight, bias, columns, width, eps, BIAS)
    tl.store(out + token.to(tl.int64) * width + columns, y.to(out.dtype.element_ty), mask=mask)


@triton.jit
def mean_pool(hidden, offsets, out, skip, power, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """One program: BLOCK columns of one sequence."""
    sequence, part = tl.program_id(0), tl.program_id(1)
    start = tl.load(offsets + sequence)
    length = tl.load(offsets + sequence + 1) - start
    columns = part * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(skip, length, ROWS):
        rows = begin + tl.arange(0, ROWS)
        mask = (rows[:, None] < length) & (columns[None, :] < width)
        place = (start.to(tl.int64) + rows[:, None]) * width + columns[None, :]
        total += tl.sum(tl.load(hidden + place, mask=mask, other=0.0).to(tl.float32), 0)
    count = tl.maximum(length - skip, 1).to(tl.float32)
    scale = tl.exp(-power * tl.log(count))
    tl.store(out + sequence.to(tl.int64) * width + columns, total * scale, mask=columns < width)
