"""What happens where the host has too little of something, where processes fork, and where Python ends."""

import ctypes
import json
import os
import resource
import sys
import threading
from pathlib import Path

from dryfit.virtual_card import calls

MIB, GIB = 1 << 20, 1 << 30
cuda, kind = ctypes.CDLL(None), sys.argv[1]


def malloc(n):
    p = ctypes.c_void_p()
    return p if cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n)) == 0 else None


def send(to, value, n):
    assert cuda.cudaMemcpy(to, bytes([value]) * n, ctypes.c_size_t(n), 1) == 0


def read(at):
    byte = ctypes.create_string_buffer(1)
    assert cuda.cudaMemcpy(byte, at, ctypes.c_size_t(1), 2) == 0
    return byte.raw[0]


if kind == "addresses":  # handed out upwards: of 20 GiB, 16 are taken, and a little less is left
    now = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + 20 * GIB, resource.RLIM_INFINITY))
    blocks = []
    while block := malloc(4 * GIB):
        blocks.append(block)
    refused = 1
    for block in blocks[:2]:
        assert cuda.cudaFree(block) == 0
    merged = 6 * GIB  # in the hole that those two left together
    sizes = [4 * GIB] * len(blocks)
    if malloc(merged):
        sizes.append(merged)
    print(json.dumps({"sizes": sizes, "merged": merged, "refused": refused, "unfaithful": calls.unfaithful_calls()}))

if kind == "copies":
    again = malloc(2 * MIB)
    said = {"first": []}
    for _ in range(2):
        for _ in range(1500):
            send(again, 5, MIB)  # takes its pages once
        said["first"].append(read(again))
    block = malloc(3 * GIB)
    for i in range(2100):
        send(ctypes.c_void_p(block.value + i * MIB), 6, MIB)
    said["past_the_limit"] = read(ctypes.c_void_p(block.value + 2090 * MIB))
    assert cuda.cudaFree(block) == 0
    block = malloc(3 * GIB)
    send(block, 5, MIB)
    said["after_freeing"] = read(block)
    said["host_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(said | {"unfaithful": calls.unfaithful_calls()}))

if kind == "forks":
    ended = False

    def capture():
        stream, graph = ctypes.c_void_p(0x10000), ctypes.c_void_p()
        while not ended:
            cuda.cudaStreamBeginCapture(stream, 2)
            cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))

    threads = [threading.Thread(target=capture, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(40):
        child = os.fork()
        if not child:
            cuda.alarm(10)  # a lock that is taken for ever ends the child
            status = ctypes.c_int()
            other, graph = ctypes.c_void_p(0x20000), ctypes.c_void_p()
            began = cuda.cudaStreamBeginCapture(other, 2)
            os._exit(began or cuda.cudaStreamEndCapture(other, ctypes.byref(graph)))
        children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if children[-1]:
            break
    ended = True
    for thread in threads:
        thread.join()
    print(json.dumps({"children": children}))

if kind == "shutdown":
    library = ctypes.CDLL(sys.argv[2])

    class Last:
        def __del__(self, join=library.join_one, ends=sys.is_finalizing, write=os.write):
            write(1, b'{"joined": %d, "finalizing": %d}' % (join(), ends()))

    last = Last()  # deleted when the interpreter is shutting down
