"""nbd_exercise.py URI MODEL SEED CALLS - random calls on a block device, against
a model of it that outlives this process: reads, writes, zeroes, trims, flushes,
by two connections in turn. Run by Debian's python3, which has libnbd.

A call that fails because the server is gone is written into the model; the next
run looks what became of it: each byte is the old one or the new one. Ends with 0;
1: something was wrong, which it prints; 3: the server is gone."""

import os
import pickle
import random
import sys

import nbd

URI, MODEL, SEED, CALLS = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])
BLOCK = 512
GONE = 3


class Wrong(Exception):
    """The device is not as the model has it."""


def load():
    try:
        with open(MODEL, "rb") as stream:
            return pickle.load(stream)
    except FileNotFoundError:
        return {"calls": 0, "bytes": None, "doubt": None}


def save(model):
    with open(MODEL + ".new", "wb") as stream:
        pickle.dump(model, stream)
    os.rename(MODEL + ".new", MODEL)


def settle(device, model):
    """What a call that was cut off has done."""
    if not model["doubt"]:
        return
    at, new = model["doubt"]
    found = device.pread(len(new), at)
    old = model["bytes"][at:at + len(new)]
    for i, byte in enumerate(found):
        if byte not in (old[i], new[i]):
            raise Wrong("byte %d is neither old nor new" % (at + i))
    model["bytes"][at:at + len(new)] = found
    model["doubt"] = None


def change(device, model, dice, at, size):
    """One change; trimmed bytes read as zeroes here."""
    kind = dice.randrange(5)
    new = bytes(size) if kind > 2 else dice.randbytes(size)
    model["doubt"] = at, new
    if kind == 4:
        device.trim(size, at)
    elif kind == 3:
        device.zero(size, at, nbd.CMD_FLAG_NO_HOLE * dice.randrange(2))
    else:
        device.pwrite(new, at)
    model["bytes"][at:at + size] = new
    model["doubt"] = None


def exercise(devices, model):
    size = len(model["bytes"])
    while model["calls"] < CALLS:
        dice = random.Random("%d %d" % (SEED, model["calls"]))
        device = devices[dice.randrange(2)]
        length = dice.choice((1, 700, BLOCK, 4096, 65536, 300000))
        at = dice.randrange(size - length)
        if dice.randrange(2):
            at -= at % BLOCK
        way = dice.randrange(20)
        if way == 0:
            device.flush()
        elif way < 9:
            if device.pread(length, at) != model["bytes"][at:at + length]:
                raise Wrong("call %d: %d bytes at %d" % (
                    model["calls"], length, at))
        else:
            change(device, model, dice, at, length)
        model["calls"] += 1
        if model["calls"] % 20 == 0:
            save(model)


def main():
    model = load()
    devices = [nbd.NBD(), nbd.NBD()]
    try:
        for device in devices:
            device.connect_uri(URI)
        if model["bytes"] is None:
            model["bytes"] = bytearray(devices[0].get_size())
        settle(devices[0], model)
        exercise(devices, model)
        for at in range(0, len(model["bytes"]), 1 << 20):
            want = model["bytes"][at:at + (1 << 20)]
            if devices[1].pread(len(want), at) != want:
                raise Wrong("the MiB at %d" % at)
    except nbd.Error as error:
        print(error)
        return GONE
    except Wrong as error:
        print("wrong: %s" % error)
        return 1
    finally:
        save(model)
    print("%d calls" % model["calls"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
