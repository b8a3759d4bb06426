"""The service: models and indexes behind HTTP, for many clients at once.

    request -> handler (routes_*.py) -> room (rooms.py) -> batcher (batching.py) -> model -> answer

`create_app` makes the application; `munjang serve` runs it. Needs the extra `serve`.
"""

from munjang.serve.app import create_app
from munjang.serve.settings import Limits, ServeSettings

__all__ = ["Limits", "ServeSettings", "create_app"]
