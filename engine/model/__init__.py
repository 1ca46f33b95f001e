"""The model's side of the engine: weights, the forward pass, sampling and text.

Torch and transformers are imported here and nowhere else. Nothing in this package knows the
scheduler's policies, the web server or the page.
"""

from __future__ import annotations
