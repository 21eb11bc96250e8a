#!/usr/bin/env python3
"""Reads sample checkpoints as checkpoints/FORMAT.md says, with nothing of Sluice's, and then as h5py shows them.

usage: read_with_h5py.py MAKE_CHECKPOINT GOLDEN_STEP_DIRECTORY

Checks the golden checkpoint and fresh ones of several layouts: every checksum, every number of every shard, every number of model.h5.
Exits 0 when all is right, else prints what is wrong.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import h5py
import numpy as np

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
PLANES = ["working", "exp_avg", "exp_avg_sq"]
GROUPS = {"working": "params", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
TAG = 7


def rotl(x, n):
    return ((x << n) | (x >> (64 - n))) & MASK


def xxh64(data):
    def lane(acc, value):
        return rotl((acc + value * P2) & MASK, 31) * P1 & MASK

    at, n = 0, len(data)
    h = P5
    if n >= 32:
        v = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        while n - at >= 32:
            for i, value in enumerate(struct.unpack_from("<4Q", data, at)):
                v[i] = lane(v[i], value)
            at += 32
        h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) & MASK
        for value in v:
            h = ((h ^ lane(0, value)) * P1 + P4) & MASK
    h = (h + n) & MASK
    while n - at >= 8:
        h = (rotl(h ^ lane(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4) & MASK
        at += 8
    if n - at >= 4:
        h = (rotl(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotl(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def value(plane, param, flat):
    return np.float32(plane * 100000 + param * 10000 + flat) + np.float32(TAG / 64)


def require(condition, text):
    if not condition:
        sys.exit("wrong: " + text)


def check_by_specification(path):
    text = open(path + "/manifest.json", "rb").read()
    manifest = json.loads(text)
    digits = manifest["manifest_xxh64"].encode()
    require(text.startswith(b'{"manifest_xxh64":"' + digits), "the manifest does not begin with its checksum")
    require("%016x" % xxh64(text.replace(digits, b"0" * 16, 1)) == digits.decode(), "the manifest's checksum")
    require(manifest["format"] == "sluice-checkpoint" and manifest["version"] == 1, "format or version")
    require(manifest["progress"]["step"] == 3, "step")
    params = manifest["parameters"]
    whole = {plane: [np.full(p["shape"], np.nan, np.float32) for p in params] for plane in PLANES}
    block = manifest["block_bytes"]
    for rank, shard in enumerate(manifest["shards"]):
        require(shard["file"] == "rank-%05d.h5" % rank, "name of a shard")
        data = open(path + "/" + shard["file"], "rb").read()
        require(len(data) == shard["bytes"], "size of " + shard["file"])
        structure, at = b"", 0
        for plane in sorted(shard["planes"], key=lambda p: p["offset"]):
            structure += data[at:plane["offset"]]
            at = plane["offset"] + 4 * plane["elements"]
        structure += data[at:]
        require("%016x" % xxh64(structure) == shard["structure_xxh64"], "structure of " + shard["file"])
        for plane in shard["planes"]:
            sums = struct.unpack_from("<%dQ" % plane["blocks"], data, plane["checksums_offset"])
            at, number = plane["offset"], 0
            for piece in plane["pieces"]:
                index, begin, count = piece[:3]
                shape = params[index]["shape"]
                offset, extent = (piece[3], piece[4]) if len(piece) == 5 else ([0] * len(shape), shape)
                bulk = data[at:at + 4 * count]
                for first in range(0, len(bulk), block):
                    require(xxh64(bulk[first:first + block]) == sums[number], "block %d of %s" % (number, shard["file"]))
                    number += 1
                numbers = np.frombuffer(bulk, "<f4")
                target = whole[plane["name"]][index]
                for i in range(count):
                    place = np.unravel_index(begin + i, extent) if shape else ()
                    place = tuple(int(a) + b for a, b in zip(place, offset))
                    require(np.isnan(target[place]), "an element of %s is held twice" % params[index]["name"])
                    target[place] = numbers[i]
                at += 4 * count
            require(number == plane["blocks"], "number of blocks")
    return params, whole


def check(path):
    params, whole = check_by_specification(path)
    with h5py.File(path + "/model.h5", "r") as model:
        require(model.attrs["step"] == 3, "step of model.h5")
        for p, plane in enumerate(PLANES):
            for index, param in enumerate(params):
                name = param["name"]
                if p > 0 and name == "frozen.weight":
                    require(name not in model[GROUPS[plane]], "moments of a frozen parameter")
                    continue
                flat = np.arange(int(np.prod(param["shape"], dtype=np.int64)), dtype=np.float32)
                expected = value(p, index, flat).reshape(param["shape"])
                require(np.array_equal(whole[plane][index], expected), "%s of %s by the specification" % (plane, name))
                shown = model[GROUPS[plane]][name]
                require(shown.dtype == np.dtype("<f4"), "type of " + name)
                require(list(shown.shape) == (param["shape"] or [1]), "shape of " + name)
                require(np.array_equal(shown[...].reshape(param["shape"]), expected), "%s of %s through h5py" % (plane, name))
                if len(param["shape"]) == 2:
                    require(np.array_equal(shown[1:3, 2:9], expected[1:3, 2:9]), "a part of %s through h5py" % name)
    with h5py.File(path + "/rank-00000.h5", "r") as shard:
        require(shard.attrs["format"] in ("sluice-checkpoint-shard", b"sluice-checkpoint-shard"), "format of a shard")
        head, body = shard["map"][()].decode().splitlines()
        require(json.loads(head)["rank"] == 0, "the map's identity")
        require(json.loads(body)["parameters"] == params, "the map's parameters")


def main():
    make, golden = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.chdir("/")  # model.h5 must find its shards from anywhere
    check(golden)
    count = 1
    for ranks in (1, 2, 3, 4):
        for layout in ("intervals", "columns", "whole", "mixed"):
            with tempfile.TemporaryDirectory() as directory:
                subprocess.run([make, directory, str(ranks), layout], check=True)
                moved = directory + "/copied"  # a checkpoint may be moved as a whole
                os.rename(directory + "/step-00000003", moved)
                check(moved)
                count += 1
    print("%d checkpoints read by the specification and through h5py %s (HDF5 %s)" % (count, h5py.__version__, h5py.version.hdf5_version))


if __name__ == "__main__":
    main()
