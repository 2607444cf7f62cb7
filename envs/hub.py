"""Whether the Hugging Face hub can be reached, asked once, before anything is looked up there.

Its client tries each of a model's files six times over half a minute, and has no setting for that. Knows neither models
nor data sets. Invariant: what the user has set ($HF_HUB_OFFLINE, $HF_ENDPOINT, proxies) is obeyed and never changed.
"""

from __future__ import annotations

import os
from functools import cache

SECONDS = 10.0
"""Until the hub is taken to be out of reach."""


@cache
def hint() -> str:
    """Empty where the hub answers; else why not, in words for the end of a message, and from here on this process looks
    into the hub's cache alone."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return " (HF_HUB_OFFLINE is set: only the hub's cache was looked into)"
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:  # the boundary to a network, whose client may be exchanged for another one
        os.environ["HF_HUB_OFFLINE"] = "1"  # for what is imported later
        constants.HF_HUB_OFFLINE = True
        return (
            f" ({constants.ENDPOINT} cannot be reached, {type(error).__name__}: only the hub's cache was looked into)"
        )
    return ""
