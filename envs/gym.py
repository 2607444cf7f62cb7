"""Importing this makes our worlds known to Gymnasium, and it does nothing else.

Gymnasium 1.x looks for no plugins: either `import harness.envs.gym` first, or write the module into the id, as in
`gymnasium.make("harness.envs.gym:harness/Echo-v0")`.
"""

from .registry import register_gymnasium

register_gymnasium()
