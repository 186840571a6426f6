#!/bin/sh
# Ray beside the real vLLM of tests/real/setup.sh, from nothing: 80 MB to fetch, 240 MB on disk, once.
# `ray` on its PATH is the program that an image with Ray has.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
engine=$(cd "$here/../real/.engine" && pwd -P)
key=$({ echo "$engine"; cat "$here/ray.txt" "$here/ray.sh"; } | sha256sum | cut -c1-12)
dir=${SPARKDASH_RAY_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkdash-tests/ray-$key}
if [ ! -f "$dir/.done" ]; then
  echo "Making Ray for the tests in $dir …"
  rm -rf "$dir"; mkdir -p "$dir/bin"
  "$engine/venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --require-hashes \
    --target "$dir/lib" -r "$here/ray.txt"
  printf '#!/bin/sh\nexec "%s/venv/bin/python" -m ray.scripts.scripts "$@"\n' "$engine" > "$dir/bin/ray"
  chmod +x "$dir/bin/ray"
  touch "$dir/.done"
fi
ln -sfn "$dir" "$here/.ray"
