#!/bin/sh
# An action with no SDK: reads frames, answers each with itself, in what every system has (dd, od, printf).
# Slow, but it shows that the bytes are all there is to it.
set -e
while :; do
    head=$(dd bs=1 count=4 2>/dev/null | od -An -tx1 | tr -d ' \n')
    [ -n "$head" ] || exit 0
    [ ${#head} -eq 8 ] || { echo "the input ends within a message" >&2; exit 1; }
    length=$((0x$head))
    [ "$length" -le 67108864 ] || { echo "an input is longer than the limit" >&2; exit 1; }
    # The payload as octal escapes, so that every byte survives the shell.
    body=$(dd bs=1 count="$length" 2>/dev/null | od -An -v -to1 | tr -s ' \n' ' ' | sed 's/ *$//; s/ /\\/g')
    [ "$(printf %s "$body" | tr -dc '\\' | wc -c)" -eq "$length" ] || { echo "the input ends within a message" >&2; exit 1; }
    printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((length >> 24 & 255)) $((length >> 16 & 255)) $((length >> 8 & 255)) $((length & 255)))$body"
done
