"""Children forked after, and while, the parent encodes: the right vectors, no hang; streams and CUDA say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import munjang
from munjang.errors import InputError
from recipes.material import tiny_model

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
SCRIPT = """
import multiprocessing, os, signal, sys, threading, time, warnings
import numpy as np, torch
import munjang

warnings.simplefilter("ignore")
torch.set_num_threads(3)  # a parent with OpenMP threads, on any machine
kind, folder = sys.argv[1:]
bulk = [f"문장 {i}: {'가나다 the guitar ' * (i % 9)}" for i in range(5000)]
if kind == "bi":
    model = munjang.load(folder, device="cpu", dtype="float32")
    call, short = model.encode, ["안녕하세요", "hello world"] * 8
else:
    model = munjang.load_cross_encoder(folder, labels=1, device="cpu", dtype="float32")
    call, short, bulk = model.predict, [("안녕", "hello world")] * 16, list(zip(bulk[:1500], bulk[1:1501]))
model.threads = 2
wanted = {"short": call(short), "bulk": call(bulk)}
inputs = {"short": short, "bulk": bulk}


def work(name):
    found = call(inputs[name])
    return bool(np.allclose(found, wanted[name], atol=1e-5)) and torch.get_num_threads() == 1


def child(name):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a hang ends in a signal
        try:
            os._exit(0 if work(name) else 3)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\\n")
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


print("after", [child(name) for name in ("short", "bulk", "short")])
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("pool", pool.map_async(work, ["short", "bulk", "short"]).get(timeout=60))

ended = threading.Event()
def busy():
    while not ended.is_set():
        call(bulk)
other = threading.Thread(target=busy)
other.start()
found = []
for name in ("short", "bulk", "short", "short", "short"):
    time.sleep(0.07)
    found.append(child(name))
ended.set()
other.join()
print("while", found)
print("parent", [bool(np.allclose(call(inputs[name]), wanted[name], atol=1e-5)) for name in inputs])
print("threads", torch.get_num_threads())

stream = (model.encode_stream if kind == "bi" else model.predict_stream)(bulk * 3)
next(stream)
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    try:
        next(stream)
    except munjang.errors.InputError as error:
        os._exit(0 if "forked" in str(error) else 5)
    os._exit(6)
print("stream", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sum(1 for _ in stream) > 0)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_forked_child_encodes(kind: str, tiny: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "TOKENIZERS_PARALLELISM": "true"}
    command = [sys.executable, "-c", SCRIPT, kind, str(tiny)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "after [0, 0, 0]",
        "pool [True, True, True]",
        "while [0, 0, 0, 0, 0]",
        "parent [True, True]",
        "threads 3",
        "stream 0 True",
    ], done.stderr


def test_cuda_in_a_forked_child_is_an_error(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = munjang.load(tiny, device="cpu", dtype="float32")
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert len(model.encode(["a model on the CPU"])) == 1
    model._device = torch.device("cuda:0")
    with pytest.raises(InputError, match=r"CUDA.*'spawn'"):
        model.encode(["hello"])
