"""What any engine reads from a model folder: its parts through transformers, and the tokens that end answers.

Knows transformers' ways of failing, so that a model that cannot be loaded is one clear message everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from harness.envs import hub
from harness.envs.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_pretrained(auto: Any, path: Path | str, **options: Any) -> Any:
    """`auto.from_pretrained(path, **options)` of a transformers Auto class. Raises UserError where that fails."""
    if Path(path).exists() and not (Path(path) / "config.json").is_file():
        raise UserError(
            f"no model in {path}: looked for config.json there. Give model.path a folder that `save_pretrained` "
            "wrote (config.json, *.safetensors and the tokenizer's files), or leave it out to make a tiny model."
        )
    # For the process: bars would be written into whatever display there is.
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    unreached = "" if Path(path).exists() else hub.hint()
    try:
        return auto.from_pretrained(path, **options)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        lines = str(error).strip().splitlines()
        raise UserError(
            f"cannot load the model '{path}': {lines[0] if lines else error!r}. Looked for config.json, weights "
            "(*.safetensors) and tokenizer files of a causal LM that transformers knows; check the path, or "
            f"download the model there first{unreached}."
        ) from error


def context_of(config: Any) -> int:
    """Most tokens of a sequence, by a model's config."""
    return int(getattr(config, "max_position_embeddings", None) or 2048)


def parameter_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every weight of a causal LM, tied ones once, by its config alone."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # transformers' own
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def end_tokens(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Ids that end an answer, by the generation config and the tokenizer together, in ascending order."""
    named = generation.eos_token_id if generation is not None else None
    ends = {*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id} - {None}
    return sorted(int(end) for end in ends if isinstance(end, int))


def generation_config(path: Path | str) -> GenerationConfig | None:
    """None where the model has none: it then ends where its tokenizer says."""
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        return None
