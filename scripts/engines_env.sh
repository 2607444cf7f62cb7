#!/usr/bin/env bash
# Makes (or brings up to date) the virtual environment in which the real engines are tested: vLLM and verl on the CPU.
#   scripts/engines_env.sh VENV_FOLDER
# The project itself is not installed there: put its folder on PYTHONPATH. Done again with the same list, it does nothing.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 VENV_FOLDER" >&2; exit 2; }
list=$(cd "$(dirname "$0")/.." && pwd)/requirements/engines.txt
python=$1/bin/python stamp=$1/.installed

if cmp --silent "$list" "$stamp"; then
    exit 0
fi
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$1"
# uv takes a minute where pip takes ten. It does not read pip's configuration, where a CPU build of torch may be named.
"$python" -m pip install --quiet --disable-pip-version-check uv
links=$("$python" -m pip config get global.find-links 2>/dev/null || true)
# --no-deps: the list is complete, and what it leaves out on purpose must not come in (see engines.in).
"$python" -m uv pip install --quiet --python "$python" --no-deps ${links:+--find-links "$links"} -r "$list"
"$python" -c "import vllm, verl, ray, torch" # fails here, and not in the middle of a test
cp "$list" "$stamp"
