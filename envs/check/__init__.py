"""What `harness env check` asks of a world, without a model.

Knows worlds through their contract. Invariant: the world's code runs in processes of its own, so that whatever it does
there (hang, exit, leak) becomes a finding, and nothing else.
"""

from .report import Finding, Report
from .run import CHECKS, check

__all__ = ["CHECKS", "Finding", "Report", "check"]
