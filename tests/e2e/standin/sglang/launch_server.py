"""Stands in for SGLang's server where the real one cannot die as a test needs it.

Real SGLang runs in all tests where it can.  This is for a virtual machine too small for torch, where
the kernel's out-of-memory killer is real, and for failures of a GPU that is not there: their log
lines come from a file made after recordings of real SGLang on a GPU, with other values, and the
processes then end as they did there.

Started as `python -m sglang.launch_server …` by a generated unit.  Like SGLang it has a main process
with a child called `sglang::scheduler`, answers /health_generate, and kills itself with SIGKILL after
a child has failed.  On POST /die it does what STANDIN_DEATH says, and already at its start when
STANDIN_AT_START is set:

    replay FILE       print the lines of FILE and end as it says
    allocate main     take memory until somebody ends it
    allocate child
    linger            lose the scheduler and the port, and live on, as main did in some releases of SGLang

With STANDIN_DRAINS set a request never ends: at SIGTERM it drains until somebody ends it.

A line of FILE begins with who prints it, `main|` or `scheduler|`; `{now}`, `{main}` and `{scheduler}`
are filled in.  `main!` and `scheduler!` are followed by a signal for that process, or `exit`.
"""

import ctypes
import os
import signal
import sys
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PIECE_BYTES = 4 << 20


def say(text: str) -> None:
    # One write a line: both processes write into one stream.
    os.write(2, f"{text}\n".encode())


def now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")


def allocate() -> None:
    taken = []
    while True:
        taken.append(bytearray(os.urandom(4096)) * (PIECE_BYTES // 4096))


def scheduler(commands: int, said: int) -> None:
    """The child: does what main says over a pipe, a line at a time, and writes a byte when it has said something."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NAME, b"sglang::scheduler")
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with os.fdopen(commands) as lines:
        for line in lines:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "say":
                say(rest)
                os.write(said, b".")
            elif word == "signal":
                os.kill(os.getpid(), int(rest))
            elif word == "allocate":
                allocate()
            else:
                os._exit(0)


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        read, write = os.pipe()
        self.said, said = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(write)
            scheduler(read, said)
            os._exit(0)
        os.close(read)
        os.close(said)
        self.commands = os.fdopen(write, "w", buffering=1)
        self.dying = threading.Event()
        self.replaying = False
        self.watcher = threading.Thread(target=self.watch_child, daemon=True)

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGUSR1, self.kill_self)
        self.watcher.start()
        if death := os.environ.get("STANDIN_AT_START"):
            self.die(death)
        server = self

        class Requests(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(b"ok")

            def do_POST(self) -> None:
                self.answer(b"dying")
                server.dying.set()

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                say(f"[{now()}] INFO:     127.0.0.1:0 - {format % args}")

        http = ThreadingHTTPServer(("127.0.0.1", self.port), Requests)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        say(f"[{now()}] The server is fired up and ready to roll!")
        self.dying.wait()
        if os.environ["STANDIN_DEATH"] == "linger":
            http.shutdown()
            http.server_close()
        self.die(os.environ["STANDIN_DEATH"])
        signal.pause()

    def stop(self, *_: object) -> None:
        left = ["cmpl-1"] if os.environ.get("STANDIN_DRAINS") else []
        say(f"[{now()}] SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        rest = f"Remaining number of requests {len(left)}. Remaining requests remaining_rids={left}."
        say(f"[{now()}] Gracefully exiting... {rest}")
        if not left:
            os._exit(0)

    def watch_child(self) -> None:
        """What SGLang's main process does when a child has been killed."""
        _, status = os.waitpid(self.child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0 or self.replaying:
            return
        say(
            f"[{now()}] Subprocess scheduler_0 (pid={self.child}) crashed with exit code {code}."
            " Triggering SIGQUIT for cleanup..."
        )
        say(f"[{now()}] SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        # As in SGLang it is the main thread that ends it all.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def kill_self(self, *_: object) -> None:
        me = os.getpid()
        say(f"[{now()}] kill_process_tree called: parent_pid={me}, include_parent=True, pid={me}")
        os.kill(me, signal.SIGKILL)

    def die(self, death: str) -> None:
        how, _, what = death.partition(" ")
        if how == "replay":
            self.replay(what)
        elif how == "linger":
            self.replaying = True
            print("exit", file=self.commands)
        elif what == "child":
            print("allocate", file=self.commands)
        else:
            allocate()

    def replay(self, path: str) -> None:
        self.replaying = True
        fill = {"{main}": str(os.getpid()), "{scheduler}": str(self.child), "{now}": now()}
        with open(path) as lines:
            for line in lines:
                for key, value in fill.items():
                    line = line.replace(key, value)
                who = "main" if line.startswith("main") else "scheduler"
                mark, text = line[len(who)], line[len(who) + 1 :].rstrip("\n")
                if mark == "|":
                    self.print(who, text)
                else:
                    self.end(who, text.strip())

    def print(self, who: str, text: str) -> None:
        if who == "main":
            say(text)
        else:
            print(f"say {text}", file=self.commands)
            os.read(self.said, 1)  # keeps the recorded order between the two writers

    def end(self, who: str, how: str) -> None:
        if who == "main":
            os.kill(os.getpid(), signal.Signals[how])
        else:
            print("exit" if how == "exit" else f"signal {int(signal.Signals[how])}", file=self.commands)
            self.watcher.join()


if __name__ == "__main__":
    Server(int(sys.argv[sys.argv.index("--port") + 1])).serve()
