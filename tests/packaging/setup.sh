#!/bin/sh
# The wheels of sparkdash's own lock file, so that the tests can install sparkdash into an empty environment offline:
# half a minute and 60 MB, once. Kept outside the checkout, named by what they are made from.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
lock=$here/../../requirements/base.txt
key=$( (cat "$lock" "$here/setup.sh"; "$python" -VV; uname -m) | sha256sum | cut -c1-12)
dir=${SPARKDASH_WHEELS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkdash-tests/wheels-$key}
mkdir -p "$(dirname "$dir")"
# Two runs of the tests at the same time fetch them once.
exec 9>"$dir.lock"
flock 9
if [ ! -f "$dir/.done" ]; then
  echo "Fetching the wheels that sparkdash needs into $dir …"
  rm -rf "$dir"; mkdir -p "$dir"
  "$python" -m pip download -qq --disable-pip-version-check --require-hashes --only-binary :all: -r "$lock" -d "$dir"
  touch "$dir/.done"
fi
ln -sfn "$dir" "$here/.wheels"
