"""Two ranks that meet while signals come in, and somebody at the door says nothing."""

import ctypes
import json
import os
import signal
import socket
import time

cuda = ctypes.CDLL(None)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


key = UniqueId()
assert cuda.ncclGetUniqueId(ctypes.byref(key)) == 0
name = f"\0dryfit-{int.from_bytes(bytes(key.bytes[:8]), 'little'):016x}"
child = os.fork()
signals = []
signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
if child:  # rank 1 waits for rank 0 first, and rank 0 then for rank 1, behind the mute one
    time.sleep(0.3)
else:
    mute = socket.socket(socket.AF_UNIX)
    while mute.connect_ex(name):
        time.sleep(0.01)
rank, comm = (0, ctypes.c_void_p()) if child else (1, ctypes.c_void_p())
status = cuda.ncclCommInitRank(ctypes.byref(comm), 2, key, rank)
signal.setitimer(signal.ITIMER_REAL, 0, 0)
if not child:
    os._exit(status)
other = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps({"status": [status, other], "signals": len(signals) > 0}))
