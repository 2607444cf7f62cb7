"""What of a world's words is told, where they are too long.

Knows texts only. Invariant: what was cut is said, with how much it was.
"""

from __future__ import annotations


def cut(text: str, longest: int) -> str:
    """The first `longest` characters, and a mark where there were more."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n[{len(text) - longest} more characters cut]"
