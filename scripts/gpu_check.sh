#!/usr/bin/env bash
# What a machine with one GPU shows that others cannot: the tests marked `gpu`, and three GRPO steps of a model of 135
# million parameters, compared with the CPU. Some minutes, no internet; wants torch and transformers, and says by name
# what it leaves out for want of other packages.
#
#     scripts/gpu_check.sh [--device cpu]     (cpu: the same steps of a smaller model, to try the script itself)
#
# PYTHON chooses the interpreter.
set -uo pipefail
cd "$(dirname "$0")/.."
PY=${PYTHON:-python3}
export PYTHONPATH=$PWD HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

has() { "$PY" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }

for package in torch transformers; do
    has $package || { echo "gpu_check: $PY has no $package"; exit 2; }
done
left_out=()
for package in vllm verl ray; do
    has $package || left_out+=("$package (not installed)")
done

status=0
if has pytest; then
    mapfile -t files < <(grep -rlE 'mark\.gpu' tests)
    echo "== tests marked gpu: ${files[*]}"
    # The project's own settings make errors of warnings, and want plugins that this machine may lack.
    timeout 240 "$PY" -m pytest -q -rs -m gpu -o filterwarnings=default -o addopts="--import-mode=importlib" \
        "${files[@]}" || status=$?
    [ $status -eq 5 ] && status=0 # none ran: each says why
else
    left_out+=("tests marked gpu (pytest is not installed)")
fi

echo "== three GRPO steps"
timeout 240 "$PY" scripts/gpu_steps.py "$@" || status=$?

echo
echo "left out: $([ ${#left_out[@]} -eq 0 ] && echo nothing || (IFS=,; echo "${left_out[*]}"))"
[ $status -eq 0 ] && echo "gpu_check: fine" || echo "gpu_check: FAILED ($status)"
exit $status
