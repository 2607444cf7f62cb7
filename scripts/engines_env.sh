#!/usr/bin/env bash
# Makes (or brings up to date) the virtual environment in which the real engines are tested: vLLM and verl on the CPU.
#   scripts/engines_env.sh VENV_FOLDER
# The project itself is not installed there: put its folder on PYTHONPATH. Done again with the same list, it does nothing.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 VENV_FOLDER" >&2; exit 2; }
list=$(cd "$(dirname "$0")/.." && pwd)/requirements/engines.txt
stamp=$1/.installed

if cmp --silent "$list" "$stamp"; then
    exit 0
fi
[ -x "$1/bin/python" ] || "${PYTHON:-python3}" -m venv "$1"
# --no-deps: the list is complete, and what it leaves out on purpose must not come in (see engines.in).
"$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$list"
"$1/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton 2>/dev/null || true
"$1/bin/python" -c "import vllm, verl, ray, torch" # fails here, and not in the middle of a test
cp "$list" "$stamp"
