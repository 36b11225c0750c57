#!/bin/sh
# Run `secagg ARGUMENTS` again for as long as it ends with 75 ("not now"); end with any other exit code.
# SIGTERM and SIGINT are passed on: secagg then stops with all kept, and so does this script, with its exit code.
child= stopped=
trap 'stopped=1; [ -n "$child" ] && kill -TERM "$child" 2>/dev/null' TERM INT
while [ -z "$stopped" ]; do
    secagg "$@" &
    child=$!
    wait "$child"
    code=$?
    if [ -n "$stopped" ]; then
        wait "$child" # the first wait ended with the signal
        exit $?
    fi
    [ "$code" -eq 75 ] || exit "$code"
    sleep "${SECAGG_AGAIN_SECONDS:-10}" &
    child=$!
    wait "$child"
done
exit 75
