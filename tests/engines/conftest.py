"""The trainer's tiny models serve here too."""

from __future__ import annotations

from ..rl.trainer.conftest import tiny

__all__ = ["tiny"]
