"""Fixtures of the recipes' tests: the folder of a tiny model, and fresh copies of it."""

from __future__ import annotations

from recipes import conftest as recipes_conftest

tiny, load = recipes_conftest.tiny, recipes_conftest.load
