"""A chat over the wire: requests as a server wants them, replies piece by piece, refusals in one line."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from runtime.remote import RemoteConversation, ServerError
from runtime.sampling import Sampling


class _Server(BaseHTTPRequestHandler):
    """Answers with the number of messages it was sent, in two pieces; refuses without the key."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body))
        if self.headers.get("Authorization") != "Bearer key":
            self.send_response(401)
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": "no key"}}).encode())
            return
        self.send_response(200)
        self.end_headers()
        for piece in ("messages: ", str(len(body["messages"]))):
            event = json.dumps({"choices": [{"delta": {"content": piece}}]})
            self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), _Server) as made:
        made.seen = []
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_turns_carry_the_history(server):
    talk = RemoteConversation(f"http://127.0.0.1:{server.server_port}/", "key", "Be brief.")
    assert list(talk.ask("one", Sampling(seed=3), 5)) == ["messages: ", "2"]
    assert "".join(talk.ask("two", Sampling(), 5)) == "messages: 4"
    path, body = server.seen[1]
    assert path == "/v1/chat/completions" and body["stream"] is True and body["max_tokens"] == 5
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert server.seen[0][1]["seed"] == 3 and "seed" not in body


def test_refusals_are_one_line(server):
    talk = RemoteConversation(f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(ServerError, match=r"^http://127.0.0.1:\d+ refused: no key$"):
        list(talk.ask("one", Sampling(), 5))
    with pytest.raises(ServerError, match=r"^a server's address that begins with http:// or https:// was wanted; "
                                          r"got 'ftp://x'$"):
        RemoteConversation("ftp://x")


def test_nobody_there():
    talk = RemoteConversation("http://127.0.0.1:9")
    with pytest.raises(ServerError, match=r"^a server was wanted at http://127.0.0.1:9; it cannot be reached \(.*\): "
                                          r"start one with `wordline serve IMAGE`$"):
        list(talk.ask("one", Sampling(), 5))
