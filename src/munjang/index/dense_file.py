"""Arrays and a header <-> one file, which is either whole or not used.

    magic | length and CRC of the header | header (JSON) | arrays, each at a multiple of 64 bytes

The header says what the arrays are, how long each is and its checksum. The file is read into memory, not mapped: a
mapped file that another program cuts short kills the process that looks into it, and one that is overwritten
changes answers. Reading costs about as long as a checksum, and the pages come from the cache.

The checksum must not cost more than the reading (zlib's CRC does): the bytes as 64-bit words in lanes, each lane a
polynomial in an odd number, modulo 2^64. A wrong word always changes its lane; noise, zeros and moved blocks change
nearly all of them.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from munjang.files import atomic_path, disk_errors, write_all

MAGIC = b"MUNJDNS1"
_LENGTHS = struct.Struct("<8sII")  # magic, bytes of the header, CRC of the header
_ALIGN = 64
_LANES = 32_768  # 64-bit words: 256 KB, which stay in the cache
_ODD = np.uint64(0x9E3779B97F4A7C15)
_PIECE = _LANES * 8 * 16  # bytes read at a time

Header = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Room = Callable[[str, Arrays, tuple[int, ...]], NDArray[Any] | None]


class Unusable(Exception):
    """The file is not there, damaged, or not what was expected: it is made again."""


def checksum(values: NDArray[Any]) -> str:
    """Of the bytes of an array."""
    lanes = np.zeros(_LANES, dtype=np.uint64)
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _PIECE):
        _take_in(lanes, flat[start : start + _PIECE])
    return _digest(lanes, len(flat))


def write(path: Path, facts: Header, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write aside, force to the disk, rename. A full disk leaves the file as it was."""
    listed = [
        {"name": name, "dtype": array.dtype.str, "shape": list(array.shape), "checksum": checksum(array)}
        for name, array in arrays.items()
    ]
    head = json.dumps({**facts, "arrays": listed}).encode()
    with (
        disk_errors(path, safe="the documents are safe; searches build what it would have held in memory"),
        atomic_path(path) as temporary,
        open(temporary, "wb", buffering=0) as file,
    ):
        write_all(file, _LENGTHS.pack(MAGIC, len(head), zlib.crc32(head)) + head)
        for array in arrays.values():
            write_all(file, bytes(-file.tell() % _ALIGN))
            write_all(file, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_header(path: Path) -> Header:
    """The header of a file that is as long as it says."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _header(file)
    except OSError as error:
        raise Unusable(str(error)) from error


def read(path: Path, check: Callable[[Header], None], room: Room) -> tuple[Header, Arrays]:
    """Header and arrays; `check` raises `Unusable` for a header of something else.

    `room` may give the memory for an array (name, arrays before it, shape): then there is only one copy of it.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            header = _header(file)
            check(header)
            arrays: Arrays = {}
            for entry in header["arrays"]:
                name, shape = str(entry["name"]), tuple(int(size) for size in entry["shape"])
                target = room(name, arrays, shape)
                if target is None:
                    target = np.empty(shape, dtype=np.dtype(entry["dtype"]))
                file.seek(-file.tell() % _ALIGN, os.SEEK_CUR)
                if _read_into(file, target) != entry["checksum"]:
                    raise Unusable(f"{name}: the bytes are not those that were written")
                arrays[name] = target
            return header, arrays
    except OSError as error:
        raise Unusable(str(error)) from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise Unusable(f"not what was expected: {error!r}") from error


def _header(file: BinaryIO) -> Header:
    start = file.read(_LENGTHS.size)
    if len(start) < _LENGTHS.size:
        raise Unusable("too short")
    magic, length, crc = _LENGTHS.unpack(start)
    head = file.read(length) if magic == MAGIC else b""
    if magic != MAGIC or len(head) != length or zlib.crc32(head) != crc:
        raise Unusable("no header of ours")
    try:
        header: Header = json.loads(head)
        end = _LENGTHS.size + length
        for entry in header["arrays"]:
            size = int(np.prod(entry["shape"], dtype=np.int64)) * np.dtype(entry["dtype"]).itemsize
            end += -end % _ALIGN + size
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"not what was expected: {error!r}") from error
    if os.fstat(file.fileno()).st_size != end:
        raise Unusable(f"expected {end} bytes, got {os.fstat(file.fileno()).st_size}")
    return header


def _read_into(file: BinaryIO, target: NDArray[Any]) -> str:
    """Fill an array and return the checksum of what came, in one pass."""
    flat = target.reshape(-1).view(np.uint8)
    view, lanes = flat.data, np.zeros(_LANES, dtype=np.uint64)
    for start in range(0, len(flat), _PIECE):
        at, stop = start, min(start + _PIECE, len(flat))
        while at < stop:
            got = file.readinto(view[at:stop])  # type: ignore[attr-defined]
            if not got:
                raise Unusable("it ends too early")
            at += got
        _take_in(lanes, flat[start:stop])
    return _digest(lanes, len(flat))


def _take_in(lanes: NDArray[np.uint64], piece: NDArray[np.uint8]) -> None:
    """Horner's rule, one row of words after the other."""
    whole = len(piece) // 8 * 8
    words = piece[:whole].view(np.uint64)
    for start in range(0, len(words), _LANES):
        some = words[start : start + _LANES]
        lanes[: len(some)] *= _ODD
        lanes[: len(some)] += some
    if whole < len(piece):
        rest = np.zeros(8, dtype=np.uint8)
        rest[: len(piece) - whole] = piece[whole:]
        lanes[-1:] *= _ODD
        lanes[-1:] += rest.view(np.uint64)


def _digest(lanes: NDArray[np.uint64], size: int) -> str:
    return f"{zlib.crc32(lanes.tobytes()):08x}{zlib.adler32(lanes.tobytes()):08x}{size:x}"
