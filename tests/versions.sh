#!/usr/bin/env bash
# The fast suite with the lowest versions that pyproject.toml claims, those of constraints.txt and the newest in range.
#
#     bash tests/versions.sh FOLDER [PYTHON ...]        for instance: bash tests/versions.sh /tmp/versions 3.10 3.13
#
# FOLDER gets a virtual environment for each Python (default: 3.10 3.12 3.13) and choice of versions, the log of each
# run, and results.txt, a line per run. It needs `uv`, these Pythons (on PATH or in pyenv), and 10 GB: PyPI's torch for
# Linux brings CUDA. CHOICES="lowest newest" leaves out the third; KEEP=1 keeps the environments.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
folder="$(mkdir -p "${1:?usage: versions.sh FOLDER [PYTHON ...]}" && cd "$1" && pwd)"
shift
export UV_CACHE_DIR="$folder/cache" UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT=600
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1

find_python() {
    local found
    for found in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        [ -x "$found" ] && echo "$found" && return
    done
    command -v "python$1"
}

one_environment() { # Python, choice
    local venv="$folder/$1-$2" log="$folder/$1-$2.log" options=()
    case "$2" in
        lowest) options=(--resolution lowest-direct) ;;
        pinned) options=(--constraint "$root/constraints.txt") ;;
        newest) ;;
        *) echo "CHOICES must be of lowest, pinned and newest, got $2." >&2 && return 2 ;;
    esac
    uv venv -q --clear --python "$(find_python "$1")" "$venv"
    uv pip install -q --python "$venv/bin/python" "${options[@]}" -e "$root[dev]" >"$log" 2>&1 || return 1
    uv pip list --python "$venv/bin/python" >>"$log" 2>/dev/null
    (cd "$root" && "$venv/bin/python" -m pytest -n 1 -p no:cacheprovider -m "not slow and not benchmarks and not weekly") >>"$log" 2>&1
}

failed=0
for choice in ${CHOICES:-lowest pinned newest}; do
    for python in "${@:-3.10 3.12 3.13}"; do
        for version in $python; do
            code=0
            one_environment "$version" "$choice" || code=$?
            packages="$(grep -E "^(torch|transformers|sentence-transformers|typer|numpy) " "$folder/$version-$choice.log" | tr -s ' \n' ' ' || true)"
            echo "Python $version, $choice: $(tail -n 1 "$folder/$version-$choice.log") [exit $code] $packages" | tee -a "$folder/results.txt"
            [ "$code" = 0 ] || failed=1
            [ -n "${KEEP:-}" ] || rm -rf "${folder:?}/$version-$choice"
        done
    done
done
exit "$failed"
