"""Without a browser the browser tests are skipped, and fail in continuous integration."""

from __future__ import annotations

import pytest

from serve.browsing import chromium


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_browser(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]) -> None:
    monkeypatch.setenv("MUNJANG_CHROMIUM", "/nowhere/chromium")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="MUNJANG_CHROMIUM"), chromium():
        pass
