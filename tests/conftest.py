"""Set before any test imports torch: passive waiting, as the application has it."""

from __future__ import annotations

from engine import environment

environment.prepare()
