#!/usr/bin/python3
"""Covers: CPython with threads, queues, subprocesses, sockets, asyncio, multiprocessing by fork,
signals, clocks and random numbers.

Hard for a recorder: the interpreter hands its lock over on timed waits, starts children with vfork,
forks with threads about, and hashes strings with a random seed.
"""

import asyncio
import multiprocessing
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def threads():
    work, results = queue.Queue(maxsize=4), queue.Queue()
    counter, lock = [0], threading.Lock()

    def worker():
        while (item := work.get()) is not None:
            with lock:
                counter[0] += 1
            results.put(item * item)

    workers = [threading.Thread(target=worker) for _ in range(4)]
    for thread in workers:
        thread.start()
    for item in range(200):
        work.put(item)
    for _ in workers:
        work.put(None)
    for thread in workers:
        thread.join()
    total = sum(results.get() for _ in range(200))
    try:
        results.get(timeout=0.005)
    except queue.Empty:
        print("threads:", counter[0], "items, sum", total)


def computing_threads():
    """Without a syscall between them, the interpreter itself switches threads."""
    sums = [0] * 3

    def compute(me):
        for i in range(60000):
            sums[me] += i

    running = [threading.Thread(target=compute, args=(me,)) for me in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print("computing threads:", sum(sums))


def sockets():
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for _ in range(3):
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                for line in stream:
                    stream.write(line.upper())
                    stream.flush()

    server = threading.Thread(target=serve)
    server.start()
    answers = 0
    for client in range(3):
        with socket.create_connection(listener.getsockname()) as connection:
            for i in range(10):
                text = f"client {client} line {i}\n".encode()
                connection.sendall(text)
                got = b""
                while not got.endswith(b"\n"):
                    got += connection.recv(100)
                assert got == text.upper()
                answers += 1
    server.join()
    listener.close()
    print("sockets:", answers, "answers")


def subprocesses():
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; print(sys.stdin.read()[::-1], end=''); sys.exit(3)"],
        input="abc", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "cba", ""), done
    first = subprocess.Popen(["echo", "b\na\nc"], stdout=subprocess.PIPE)
    second = subprocess.run(["sort"], stdin=first.stdout, capture_output=True)
    first.stdout.close()
    assert first.wait() == 0 and second.stdout == b"a\nb\nc\n"
    sleeper = subprocess.Popen(["sleep", "100"])
    try:
        sleeper.wait(timeout=0.01)
    except subprocess.TimeoutExpired:
        sleeper.kill()
    assert sleeper.wait() == -signal.SIGKILL
    try:
        subprocess.run(["/nonexistent/program"])
    except FileNotFoundError:
        print("subprocesses: 4 ended, 1 missing")


async def asynchronous():
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line[::-1].strip() + b"\n")
            await writer.drain()
        writer.close()

    async def client(me):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%d\n" % (me + 100))
        answer = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return int(answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*(client(me) for me in range(20)))
    child = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    assert output == b"hello\n"
    try:
        await asyncio.wait_for(asyncio.Event().wait(), timeout=0.005)
    except asyncio.TimeoutError:
        pass
    in_thread = await asyncio.to_thread(sum, range(100))
    server.close()
    await server.wait_closed()
    print("asyncio:", sum(answers), in_thread)


def square(number):
    return number * number


def processes():
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        squares = pool.map(square, range(50))
    ours, theirs = context.Pipe()
    total = context.Value("l", 0)

    def child():
        while (item := theirs.recv()) is not None:
            with total.get_lock():
                total.value += item
        sys.exit(7)

    process = context.Process(target=child)
    process.start()
    for item in [*range(50), None]:
        ours.send(item)
    process.join()
    assert process.exitcode == 7
    print("processes:", sum(squares), total.value)


def others():
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.005)
    while len(seen) < 2:
        pass
    assert seen == [signal.SIGUSR1, signal.SIGALRM]
    before = time.monotonic()
    time.sleep(0.005)
    assert time.monotonic() - before >= 0.005 and time.time() > 1e9
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "file")
        with open(path, "w") as file:
            file.write("text")
        assert os.listdir(directory) == ["file"] and os.stat(path).st_size == 4
    drawn = [random.random(), random.SystemRandom().random(), hash("text") or 1]
    random.seed(1)
    print("others: drawn", len(set(drawn)), "then", random.randrange(1000))
    if sys.argv[1:] == ["order"]:
        print("random:", drawn, "time:", time.time_ns())


if __name__ == "__main__":
    threads()
    computing_threads()
    sockets()
    subprocesses()
    asyncio.run(asynchronous())
    sys.stdout.flush()
    processes()
    others()
