#!/usr/bin/python3
"""Covers: an interpreter whose threads compute and are interrupted where no call is.

Hard for a replayer: between one round of a loop and the next, registers, the stack and what they
point to are the same again and again. What differs is in objects some pointers away, which are made
and freed in the same few places.
"""

import threading


def compute(start, rounds, results):
    total = start
    for i in range(rounds):
        total = (total * 31 + i) % 1000003
    results[start] = total


def main():
    results = {}
    workers = [threading.Thread(target=compute, args=(n, 400000, results)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print("computed", [results[n] for n in sorted(results)])


main()
