"""kazoo, driven by lines on standard input. The protocol is told in interop/doc.go."""

import concurrent.futures
import os
import sys
import threading

import kazoo.client

commands = {}
handles = {}
printing = threading.Lock()


class Handle:
    """One contender: a thread and what it holds."""

    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.lock = None


def command(function):
    """Makes a function a command; what it returns is the answer."""
    commands[function.__name__] = function
    return function


@command
def lock(handle, path):
    handle.lock = new_lock(path)
    handle.lock.acquire()
    return ""


@command
def trylock(handle, path):
    handle.lock = new_lock(path)
    return str(handle.lock.acquire(blocking=False)).lower()


@command
def rlock(handle, path):
    handle.lock = client.ReadLock(path)
    handle.lock.acquire()
    return ""


@command
def wlock(handle, path):
    handle.lock = client.WriteLock(path)
    handle.lock.acquire()
    return ""


@command
def unlock(handle):
    handle.lock.release()
    return ""


@command
def poll(handle, path):
    return (client.Queue(path).get() or b"").decode()


def new_lock(path):
    return client.Lock(path, extra_lock_patterns=["-lock-"])


def answer(call, name, handle, args):
    try:
        text = "ok\t" + commands[name](handle, *args)
    except BaseException as e:
        text = "err\t" + repr(e).replace("\n", " ")
    with printing:
        print(call, text, sep="\t", flush=True)


servers, session_timeout = sys.argv[1], int(sys.argv[2])
client = kazoo.client.KazooClient(hosts=servers, timeout=session_timeout / 1000)
client.start(timeout=30)
print("ready", flush=True)

for line in sys.stdin:
    call, name, handle, *args = line.rstrip("\n").split("\t")
    if handle not in handles:
        handles[handle] = Handle()
    handles[handle].thread.submit(answer, call, name, handles[handle], args)

client.stop()
os._exit(0)  # threads may be blocked for ever
