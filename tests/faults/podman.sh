# A stand-in for podman whose containers are processes, and which fails where a test says so.
#
# State lives in the folder named by FAKE_PODMAN, a container's in c/NAME. A file `fault.VERB` there makes that verb
# misbehave, and `fault.every` all: `hang`, an exit code (`125`, with the file's other lines on stderr), `silent` (it does its work and loses its
# output), `garbage`, `killed`. Every call is written to `calls`.
#
# A test calls it thirty times, mostly to look: those verbs are a shell's, which starts in a twentieth of Python's time.
# What changes something is podman.py's; PYTHON and HERE, written above this text, say where.

case $1 in --log-level*) shift ;; esac
printf '%s\n' "$*" >>"$FAKE_PODMAN/calls"
verb=$1 fault=$FAKE_PODMAN/fault.$1
[ -e "$fault" ] || fault=$FAKE_PODMAN/fault.every
if [ -e "$fault" ]; then
    how=
    { { read -r how; told=$(while IFS= read -r line || [ "$line" ]; do printf '%s\n' "$line"; done); } <"$fault"; } 2>/dev/null
    case $how in
    '') ;; # it was taken away this moment
    hang) while [ -e "$fault" ]; do /bin/sleep 0.2; done ;;
    killed) kill -9 $$ ;;
    garbage) printf '{"Id": [not json\0\033[31m\n'; exit 0 ;;
    silent) exec >/dev/null 2>&1 ;;
    *) printf %s "$told" >&2; exit "$how" ;;
    esac
fi

place() { # $folder of a container, by name or id
    for folder in "$FAKE_PODMAN"/c/*; do
        [ -e "$folder/facts" ] || continue
        [ "${folder##*/}" = "$1" ] && return
        { read -r id <"$folder/id"; } 2>/dev/null && [ "$id" = "$1" ] && return
    done
    gone "$1"
}

gone() { # or it was removed while we looked
    printf 'Error: no container with name or ID "%s" found: no such container\n' "$1" >&2
    exit 125
}

case $verb in
image) # all but one exist
    case $* in *missing*) exit 1 ;; esac ;;
inspect) # --type container NAMES
    shift 3
    all=
    for name; do
        place "$name"
        read -r facts <"$folder/facts" && read -r state <"$folder/state" || gone "$name"
        if [ -e "$folder/exit" ]; then
            read -r code <"$folder/exit" || gone "$name"
            state="{\"Status\": \"exited\", \"ExitCode\": $code, \"Pid\": 0}"
        fi
        all="$all${all:+, }{$facts, \"State\": $state}"
    done
    printf '%s\n' "[$all]" ;;
ps) # ids by label
    for folder in "$FAKE_PODMAN"/c/*; do
        { [ -e "$folder/facts" ] && read -r labels <"$folder/labels"; } 2>/dev/null || continue
        for word; do
            case $word in label=*=*) case $labels in *"|${word#label=}|"*) ;; *) continue 2 ;; esac ;; esac
        done
        read -r id <"$folder/id" && printf '%s\n' "$id"
    done ;;
top) # its one process
    place "$2"
    [ -e "$folder/exit" ] && { echo "Error: top can only be used on running containers" >&2; exit 125; }
    read -r pid <"$folder/pid" || gone "$2"
    printf 'HPID\n%s\n' "$pid" ;;
*) exec "$PYTHON" -SEs "$HERE/podman.py" "$@" ;;
esac
