"""The programs that every SDK is tested with: echo, filter, split, slow."""

import sys
import time

import millstream_action as action


def echo(payload, _):
    action.write_message(payload) if payload else action.ack_message()


def filter_(payload, mod):
    if payload == b"fatal":
        action.fatal("as you wish")
    if len(payload) != 4:
        action.write_error(f"{len(payload)} bytes are no number")
    elif int.from_bytes(payload, "big") % mod:
        action.ack_message()
    else:
        action.write_message(payload)


def split(payload, _):
    for part in payload.split(b","):
        if part:
            action.write_message(part)
    action.ack_message()


def slow(payload, milliseconds):
    time.sleep(milliseconds / 1000)
    echo(payload, 0)


def main():
    name = sys.argv[1]
    argument = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    work = {"echo": echo, "filter": filter_, "split": split, "slow": slow}[name]
    while (payload := action.read_message()) is not None:
        work(payload, argument)


main()
