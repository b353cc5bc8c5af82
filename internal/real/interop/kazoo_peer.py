"""kazoo, driven by lines on standard input. The protocol is in interop/doc.go."""

import concurrent.futures
import os
import sys
import threading
import time

import kazoo.client

PAYLOAD = b"0123456789" * 10

commands = {}
handles = {}
clients = []
opening = threading.Lock()
printing = threading.Lock()


class Handle:
    """One contender: a thread and what it holds."""

    def __init__(self):
        self.thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.lock = None
        self.queue = None
        self.party = None
        self.line = None


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
    handle.lock = client(0).ReadLock(path)
    handle.lock.acquire()
    return ""


@command
def wlock(handle, path):
    handle.lock = client(0).WriteLock(path)
    handle.lock.acquire()
    return ""


@command
def unlock(handle):
    handle.lock.release()
    return ""


@command
def offer(handle, path, data, priority="100"):
    client(0).Queue(path).put(data.encode(), int(priority))
    return ""


@command
def poll(handle, path):
    if handle.queue is None or handle.queue.path != path:
        handle.queue = client(0).Queue(path)
    return (handle.queue.get() or b"").decode()


@command
def count(handle, path, n):
    counter = client(0).Counter(path)
    for _ in range(int(n)):
        counter += 1
    return ""


@command
def join(handle, path, name, shallow=""):
    party = client(0).ShallowParty if shallow else client(0).Party
    handle.party = party(path, name)
    handle.party.join()
    return ""


@command
def leave(handle):
    handle.party.leave()
    return ""


@command
def members(handle):
    return " ".join(sorted(handle.party))


def new_lock(path):
    return client(0).Lock(path, extra_lock_patterns=["-lock-"])


# The benchmark's commands.


@command
def lockloop(handle, path, sessions, millis):
    client(int(sessions) - 1)

    def work(worker):
        lock = client(worker).Lock(path, PAYLOAD.decode())

        def cycle():
            lock.acquire()
            lock.release()

        return repeat(millis, cycle)

    return timed(int(sessions), work)


@command
def lockline(handle, path, n, sessions):
    handle.line = Line(int(n), int(sessions), lambda c: c.Lock(path, PAYLOAD.decode()))
    return "0 0"


@command
def electionline(handle, path, n, sessions):
    return lockline(handle, path, n, sessions)  # kazoo's Election is its Lock around a call


@command
def drain(handle):
    return handle.line.drain()


@command
def offerloop(handle, path, threads, millis):
    queue = client(0).Queue(path)
    return timed(int(threads), lambda worker: repeat(millis, lambda: queue.put(PAYLOAD)))


@command
def takeloop(handle, path, consumers, millis):
    client(int(consumers) - 1)

    def work(worker):
        queue = client(worker).Queue(path)
        return repeat(millis, lambda: queue.get() is not None)

    return timed(int(consumers), work)


def client(i):
    """Returns the client of a session, and opens those that are missing up to it."""
    with opening:
        while len(clients) <= i:
            c = kazoo.client.KazooClient(hosts=servers, timeout=session_timeout / 1000)
            c.start(timeout=30)
            clients.append(c)
        return clients[i]


def timed(workers, work):
    """Runs work(worker), which returns how often it did something, in so many threads."""
    done, failed = [], []

    def run(worker):
        try:
            done.append(work(worker))
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(workers)]
    began = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return f"{sum(done)} {time.perf_counter_ns() - began}"


def repeat(millis, op):
    """Repeats op until the time is over, or it returns False."""
    deadline = time.perf_counter_ns() + int(millis) * 1_000_000
    n = 0
    while n == 0 or time.perf_counter_ns() < deadline:
        if op() is False:
            break
        n += 1
    return n


class Line:
    """One contender holds and the others wait."""

    def __init__(self, n, sessions, contender):
        client(sessions - 1)
        self.first = contender(client(0))
        self.first.acquire()
        self.waiting = n - 1
        self.change = threading.Condition()
        self.threads = []
        for i in range(1, n):
            waiter = contender(client(i % sessions))
            thread = threading.Thread(target=self.wait, args=(waiter,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def wait(self, waiter):
        waiter.acquire()
        with self.change:
            self.waiting -= 1
            self.change.notify()
        waiter.release()

    def drain(self):
        began = time.perf_counter_ns()
        self.first.release()
        with self.change:
            while self.waiting:
                self.change.wait()
        took = time.perf_counter_ns() - began
        for thread in self.threads:
            thread.join()
        return f"{len(self.threads)} {took}"


def answer(call, name, handle, args):
    try:
        text = "ok\t" + commands[name](handle, *args)
    except BaseException as e:
        text = "err\t" + repr(e).replace("\n", " ")
    with printing:
        print(call, text, sep="\t", flush=True)


servers, session_timeout = sys.argv[1], int(sys.argv[2])
threading.stack_size(256 * 1024)  # for lines of many threads
client(0)
print("ready", *commands, sep="\t", flush=True)

for line in sys.stdin:
    call, name, handle, *args = line.rstrip("\n").split("\t")
    if handle not in handles:
        handles[handle] = Handle()
    handles[handle].thread.submit(answer, call, name, handles[handle], args)

for c in list(clients):
    c.stop()
os._exit(0)  # threads may be blocked for ever
