"""Asks an API at a steady rate: `python -m tests.bench.load PORT RATE SECONDS PATH…`, the paths in turn. Prints the
seconds of each answer, counted from when the request was due, so that a slow answer cannot hide those behind it. A
process of its own: the one that answers must not share its interpreter with the one that asks."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection


def main() -> None:
    port, rate, seconds = map(int, sys.argv[1:4])
    paths = sys.argv[4:]
    began = time.perf_counter() + 0.2

    def ask(number: int) -> float:
        due = began + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        with closing(HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", paths[number % len(paths)])
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        return time.perf_counter() - due

    with ThreadPoolExecutor(16) as pool:
        for waited in pool.map(ask, range(rate * seconds)):
            print(waited)


if __name__ == "__main__":
    main()
