#!/bin/sh
# A real llama-server (CPU only) and a tiny model for it, from nothing: three minutes of two cores and 13 MB, once.
# Kept outside the checkout, named by what it is made from, so that another clone finds it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
key=$(cat "$here/llama-tools.txt" "$here/llama-source.txt" "$here/tiny_gguf.py" "$here/llama.sh" | sha256sum | cut -c1-12)
dir=${SPARKDASH_LLAMA_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkdash-tests/llama-$key}
mkdir -p "$(dirname "$dir")"
# Two runs of the tests at the same time build it once.
exec 9>"$dir.lock"
flock 9
if [ ! -f "$dir/.done" ]; then
  if ! command -v c++ >/dev/null 2>&1; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
      echo "The tests build llama-server and need a C++ compiler. As root on Debian or Ubuntu: apt-get install g++" >&2
      exit 1
    fi
    echo "Installing a C++ compiler …"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends g++ libc6-dev >/dev/null
  fi
  echo "Building a real llama-server for the tests in $dir …"
  rm -rf "$dir"; mkdir -p "$dir/made/source"
  "$python" -m venv "$dir/made/venv"
  tools="$dir/made/venv/bin"
  pip="$tools/python -m pip --disable-pip-version-check -qq"
  $pip install --require-hashes -r "$here/llama-tools.txt"
  $pip download --require-hashes --no-deps --no-binary :all: --no-build-isolation \
    -r "$here/llama-source.txt" -d "$dir/made"
  tar -xzf "$dir"/made/llama_cpp_python-*.tar.gz -C "$dir/made/source" --strip-components=1
  # Of the standard optimisation most costs compile time; for a quarter of a million parameters -O1 is as quick.
  PATH="$tools:$PATH" cmake -S "$dir/made/source/vendor/llama.cpp" -B "$dir/made/build" -G Ninja -Wno-dev \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DBUILD_SHARED_LIBS=OFF \
    -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$dir/made/log" 2>&1 || { tail -n 40 "$dir/made/log" >&2; exit 1; }
  nice "$tools/ninja" -C "$dir/made/build" llama-server >>"$dir/made/log" 2>&1 || { tail -n 40 "$dir/made/log" >&2; exit 1; }
  mkdir "$dir/bin"
  mv "$dir/made/build/bin/llama-server" "$dir/bin/"
  "$python" "$here/tiny_gguf.py" "$dir/tiny.gguf"
  rm -rf "$dir/made"
  touch "$dir/.done"
fi
ln -sfn "$dir" "$here/.llama"
