"""The gallery made again: every command of docs/gallery.md, what it prints below it, the pictures that it draws.

    python -m benchmarks.gallery --write

Run after the bundled weights have changed. The picture of the page that needs a browser is made by hand; the command
says so. Without --write the differences are told and nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from munjang.cli import main as munjang

ROOT = Path(__file__).parents[1]
PAGES = ("gallery.md", "gallery.ko.md")
BLOCK = re.compile(r"```bash\n(?P<commands>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL)


def run(commands: str) -> str:
    """What the commands print; in float32, so that machines differ in the last digits at most."""
    printed = io.StringIO()
    for line in commands.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words[0] != "munjang":
            subprocess.run(line, shell=True, check=True)
            continue
        with contextlib.redirect_stdout(printed):
            if munjang([*words[1:], "--dtype", "float32"]) != 0:
                sys.exit(f"failed: {line}")
    return printed.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/")
    write = parser.parse_args().write
    pages = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES}
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("docs", "src"):
            Path(name).symlink_to(ROOT / name, target_is_directory=True)
        for found in BLOCK.finditer(pages[PAGES[0]]):
            printed, before = run(found["commands"]), found["output"]
            if before is not None and printed != before:
                print(f"differs: {found['commands'].strip()}")
                pages = {page: text.replace(before, printed) for page, text in pages.items()}
        for picture in Path().glob("*.png"):
            if write:
                shutil.copy(picture, ROOT / "docs/images" / picture.name)
            print(f"drawn: {picture.name}")
        os.chdir(ROOT)
    if write:
        for page, text in pages.items():
            (ROOT / "docs" / page).write_text(text, encoding="utf-8")
    print("by hand, in a browser set to dark: map-notes.html, as docs/images/map-notes-page.png")


if __name__ == "__main__":
    main()
