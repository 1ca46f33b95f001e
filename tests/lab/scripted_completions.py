"""A completion server with scripted timings, for the tests of comparisons: known truth, no model.

Run as `python scripted_completions.py PORT NAME=VALUE...`; see `SCRIPT` for what can be set.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# first and gap: seconds before the first and between further tokens; usage: whether the stream
# tells it; fault: "status" answers 422, "error" breaks off after a token, "silent" sends no text,
# "junk" sends what is no JSON, "slow" never ends, "crash" ends the process; short: tokens left
# out at the end.
SCRIPT: dict[str, Any] = {"first": 0.05, "gap": 0.01, "usage": 1, "fault": "", "short": 0}


class Handler(BaseHTTPRequestHandler):
    """Answers `/health` and streams `max_tokens` tokens for any completion."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if SCRIPT["fault"] == "crash":
            print("illegal instruction", flush=True)
            os._exit(3)
        if SCRIPT["fault"] == "status":
            self.send_response(422)
            self.end_headers()
            self.wfile.write(b"Unexpected fields in the request")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._event({"choices": [{"text": "", "index": 0}]})
        self._tokens(body["max_tokens"] - int(SCRIPT["short"]))
        self.wfile.write(b"data: [DONE]\n\n")

    def _tokens(self, count: int) -> None:
        fault = SCRIPT["fault"]
        if fault == "silent":
            return
        for number in range(count):
            time.sleep(float(SCRIPT["gap"] if number else SCRIPT["first"]))
            self._event({"choices": [{"text": " word", "index": 0}]})
            if fault == "slow":
                time.sleep(60)
            if fault == "error":
                self._event({"error": {"message": "the pool is full"}})
                return
            if fault == "junk":
                self.wfile.write(b"data: <html>\n\n")
                return
        if int(SCRIPT["usage"]):
            self._event({"choices": [], "usage": {"completion_tokens": count}})

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Say nothing of each request."""


if __name__ == "__main__":
    SCRIPT.update(pair.split("=") for pair in sys.argv[2:])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
