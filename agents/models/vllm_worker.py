"""What runs inside vLLM's own workers: new weights by way of a file, whole and checked, and this harness's way to draw.

`Weights` is given to vLLM by name (`worker_extension_cls`, or `--worker-extension-cls` of a server), which adds its
methods to each worker. Knows vLLM's model runner. Invariant: after `take_weights` every parameter holds what the file
says, also where vLLM keeps copies of its own (packed for the CPU, or tied to another).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter import changes, is_change, onto, refuse_misfits
from .draw import draw, uniform

if TYPE_CHECKING:
    import torch

EXTENSION = f"{__name__}.Weights"
SHARED = Path("/dev/shm")  # noqa: S108 - files there have names of their own
"""Where files stay in memory."""


def write_weights(
    weights: Iterable[tuple[str, torch.Tensor]], file: Path, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """A safetensors file of them, of those that share one storage the first; or of a change of some.

    Raises ValueError where they are not those that `shapes` names, all of them: vLLM would load a part in silence.
    """
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    halved: dict[str, torch.Tensor] = {}
    for name, tensor in weights:
        if is_change(name):
            halved[name] = tensor.detach().cpu().contiguous()
            continue
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            if tuple(tensor.shape) != shapes.get(name):
                there = shapes.get(name, "unknown there")
                raise ValueError(f"weight '{name}' of shape {tuple(tensor.shape)} does not fit: {there}")
            tensors[name] = tensor.detach().cpu().contiguous()
    if halved:
        refuse_misfits(changes(halved), shapes)
        save_file(halved, file)
        return
    if missing := shapes.keys() - tensors.keys():
        raise ValueError(f"{len(missing)} weights did not come, among them '{min(missing)}'")
    save_file(tensors, file)


class Weights:
    """Methods that a vLLM worker gets; `model_runner` and `vllm_config` are the worker's."""

    model_runner: Any
    vllm_config: Any

    def take_weights(self, file: str) -> str:
        """Load a safetensors file of weights by their names in transformers, in place; one of a change of them onto
        those in the model's folder, which are read again.

        Returns what is wrong with it, or an empty text: an exception would end vLLM's engine.
        """
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        model, config = self.model_runner.get_model(), self.model_runner.model_config
        problem = ""
        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(model)
            try:
                model.load_weights(all_weights(_weights(file), self.vllm_config, model))
            except (KeyError, ValueError, AssertionError, RuntimeError, OSError) as error:
                problem = f"{type(error).__name__}: {error}"
            finalize_layerwise_reload(model, config)
            mend_tied_head(model)
        self.model_runner.reset_lora_state()
        return problem

    def draw_as_local(self) -> None:
        """On a CPU: draw from (seed, position) as the local engine does, so that the same seeds give the same episodes.

        It is quicker there, too, than vLLM's own way, which fills a row of the vocabulary with noise for each request.
        """
        if self.model_runner.device.type == "cpu":
            self.model_runner.sampler.topk_topp_sampler.forward = _Draw(self.model_runner.input_batch)


class _Draw:
    """Takes the place of the `forward` of vLLM's `TopKTopPSampler`."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __call__(
        self, logits: torch.Tensor, generators: Mapping[int, torch.Generator], k: Any, p: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """logits: [rows, vocabulary] after temperature. Returns ids, and logprobs of the distribution drawn from."""
        import torch
        from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

        logits = apply_top_k_top_p(logits, k, p)
        rows = len(logits)
        seeds = torch.randint(2**62, (rows,)).numpy().astype(np.uint64)  # the same in all workers of an engine
        for row, generator in generators.items():
            seeds[row] = generator.initial_seed()
        one = np.ones(rows, np.float32)
        at = self._batch.num_tokens_no_spec[:rows].astype(np.int64)  # where the next token will stand
        ids, _ = draw(logits, one, one, uniform(seeds, at))
        return torch.from_numpy(ids), logits.log_softmax(-1)


def _weights(file: str) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - no mapping
            yield name, tensors.get_tensor(name)


def all_weights(
    weights: Iterable[tuple[str, torch.Tensor]], vllm_config: Any, model: Any
) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights as they came; or, where a change of some came, those in the model's folder with the change."""
    from vllm.model_executor.model_loader import get_model_loader

    coming = iter(weights)
    for first in coming:
        if not is_change(first[0]):
            yield first
            yield from coming
        else:
            loaded = get_model_loader(vllm_config.load_config).get_all_weights(vllm_config.model_config, model)
            yield from onto(loaded, changes(dict([first, *coming])))


def mend_tied_head(model: Any) -> None:
    """Let an output head that shares the embedding's weights see the new ones.

    vLLM (0.28 to 0.31) loads such a head through the embedding, so a reload passes it by: it is left with what it was
    given before, on a CPU in a packed copy of its own. To be taken out when vLLM's reload ties again by itself; the
    test that compares logprobs after an update of a tied model then still passes without it.
    """
    head: Any = getattr(model, "lm_head", None)
    if not getattr(model.config, "tie_word_embeddings", False) or not hasattr(head, "quant_method"):
        return
    head.weight = model.model.embed_tokens.weight
    head.quant_method.process_weights_after_loading(head)
