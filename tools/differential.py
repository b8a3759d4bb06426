#!/usr/bin/env python3
"""Run the same public calls in two trees of the project and compare what comes out.

    git worktree add ../old COMMIT
    .venv/bin/python tools/differential.py --old ../old --new . [--seed N] [--only vectors,index]

Values, ids, order, exit statuses and exception types are compared; wording, timings, file names and help are not.
Inputs follow from the seed: use a fresh one each time, and repeat a failing one with --seed. `--list` shows the
scenarios.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scenarios import SCENARIOS, SKIPPED, Sandbox

SHOWN = 8  # differences per scenario
TIMEOUT = 1200  # seconds per scenario and tree


def plain(value: Any) -> Any:
    """Turn arrays and mappings into what JSON holds."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.astype(np.float64).round(7).tolist() if value.dtype.kind == "f" else value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each place where two plain values differ; what the old tree skipped is not compared."""
    if old == SKIPPED:
        return
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key, "absent"), new.get(key, "absent"), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}: {len(old)} entries, now {len(new)}"
        for place, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from differences(before, after, f"{path}[{place}]")
    elif numbers and not isinstance(old, bool) and not isinstance(new, bool):
        if not math.isclose(old, new, rel_tol=1e-3, abs_tol=5e-5) and not (math.isnan(old) and math.isnan(new)):
            yield f"{path}: {old}, now {new}"
    elif old != new:
        yield f"{path}: {str(old)[:80]!r}, now {str(new)[:80]!r}"


def run_in(tree: Path, name: str, seed: int, folder: Path, old: Path | None = None) -> Any:
    """Run a scenario in a fresh process that imports the package from `tree`."""
    folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
    }
    command = [
        sys.executable,
        __file__,
        "--child",
        name,
        str(tree),
        str(seed),
        str(folder),
        *([str(old)] if old else []),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    result = folder / "result.json"
    return json.loads(result.read_text()) if result.exists() else {"failed": done.stderr.strip().splitlines()[-3:]}


def child(name: str, tree: str, seed: str, folder: str, old: str | None = None) -> None:
    """Run one scenario here and write its values; the package must come from the tree that was asked for."""
    import munjang

    if not Path(munjang.__file__).resolve().is_relative_to(Path(tree).resolve()):
        raise SystemExit(f"munjang was imported from {munjang.__file__}, expected it under {tree}")
    sandbox = Sandbox(random.Random(f"{name}{seed}"), Path(folder), Path(old) if old else None)
    values = SCENARIOS[name](sandbox)
    (sandbox.folder / "result.json").write_text(json.dumps(plain(values)))


def compare(name: str, old_tree: Path, new_tree: Path, seed: int, folder: Path) -> list[str]:
    """Print the outcome of one scenario and return its differences; a scenario that fails in both trees differs."""
    old = run_in(old_tree, name, seed, folder / "old")
    new = run_in(new_tree, name, seed, folder / "new", folder / "old" if name == "compat" else None)
    failed = [side["failed"] for side in (old, new) if isinstance(side, dict) and "failed" in side]
    found = [f"both trees failed: {failed[0]}"] if len(failed) == 2 else list(differences(old, new))
    verdict = f"{len(found)} differences" if found else "skipped" if old == SKIPPED else "same"
    print(f"{name}: {verdict}", *found[:SHOWN], sep="\n  ", flush=True)
    return found


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="the tree to compare with, such as a git worktree")
    parser.add_argument("--new", type=Path, default=Path(), help="the changed tree (default: the current folder)")
    parser.add_argument("--seed", type=int, help="of the random inputs (default: a fresh one)")
    parser.add_argument("--only", metavar="NAME,NAME", help="scenarios to run (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios and exit")
    arguments = parser.parse_args()
    if arguments.list:
        print(*SCENARIOS, sep="\n")
        return 0
    names = arguments.only.split(",") if arguments.only else list(SCENARIOS)
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    if arguments.old is None:
        parser.error("--old is required")
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    old_tree, new_tree = arguments.old.resolve(), arguments.new.resolve()
    with tempfile.TemporaryDirectory() as folder:
        differing = [name for name in names if compare(name, old_tree, new_tree, seed, Path(folder) / name)]
    print(f"seed {seed}: {len(differing)} of {len(names)} scenarios differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
