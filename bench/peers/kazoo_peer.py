"""kazoo at the same work as the others. How it is told what to do is written in peers.go."""

import os
import queue
import sys
import threading
import time

import kazoo.client
import kazoo.recipe.queue

PAYLOAD = b"0123456789" * 10

clients = []
line = None


def client(i):
    while len(clients) <= i:
        c = kazoo.client.KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
        c.start(timeout=30)
        clients.append(c)
    return clients[i]


def timed(workers, work):
    """Runs work(worker), which returns how often it did something, in that many threads."""
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
    return sum(done), time.perf_counter_ns() - began


def repeat(millis, op):
    """Repeats op until the time is over, or it returns False."""
    deadline = time.perf_counter_ns() + int(millis) * 1_000_000
    n = 0
    while n == 0 or time.perf_counter_ns() < deadline:
        if op() is False:
            break
        n += 1
    return n


def lock(path, millis):
    return lockloop(path, "1", millis)


def lockloop(path, sessions, millis):
    client(int(sessions) - 1)

    def work(worker):
        lock = client(worker).Lock(path, PAYLOAD.decode())

        def cycle():
            lock.acquire()
            lock.release()

        return repeat(millis, cycle)

    return timed(int(sessions), work)


class Line:
    """One holds and the others wait."""

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
        return len(self.threads), took


def lockline(path, n, sessions):
    global line
    line = Line(int(n), int(sessions), lambda c: c.Lock(path, PAYLOAD.decode()))
    return 0, 0


def drain():
    return line.drain()


def offer(path, threads, millis):
    q = kazoo.recipe.queue.Queue(client(0), path)
    return timed(int(threads), lambda worker: repeat(millis, lambda: q.put(PAYLOAD)))


def take(path, consumers, millis):
    client(int(consumers) - 1)

    def work(worker):
        q = kazoo.recipe.queue.Queue(client(worker), path)
        return repeat(millis, lambda: q.get() is not None)

    return timed(int(consumers), work)


COMMANDS = [lock, lockloop, lockline, drain, offer, take]
commands = {f.__name__: f for f in COMMANDS}
commands["electionline"] = lockline  # its Election is its Lock around a call


def read(requests):
    """Ends the process with its standard input, whatever it is doing."""
    for request in sys.stdin:
        requests.put(request.rstrip("\n").split("\t"))
    os._exit(0)


def main():
    threading.stack_size(256 * 1024)
    client(0)
    print("ready\t" + " ".join(commands), flush=True)
    requests = queue.SimpleQueue()
    threading.Thread(target=read, args=(requests,), daemon=True).start()
    while True:
        command, *words = requests.get()
        try:
            ops, nanos = commands[command](*words)
            answer = f"ok\t{ops}\t{nanos}"
        except BaseException as e:
            answer = "err\t" + repr(e).replace("\n", " ").replace("\t", " ")
        print(answer, flush=True)


main()
