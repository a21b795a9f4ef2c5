"""A chat over the wire: requests as a server wants them, replies piece by piece, refusals in one line."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import SHUT_WR, create_server

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


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://x:port", "http://[x", "http://a b", "http://x:99999",
                                 "http://x\n", ""])
def test_addresses_that_are_none(url):
    with pytest.raises(ServerError, match=re.escape("a server's address such as 'http://127.0.0.1:8000' was wanted; "
                                                    f"got {url!r}: check it") + "$"):
        RemoteConversation(url)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "a b"])
def test_keys_that_are_none(key):
    with pytest.raises(ServerError, match=r"^an API key of visible ASCII characters was wanted; got others: check it$"):
        RemoteConversation("http://127.0.0.1:8000", key)


def test_the_address_that_clients_of_openai_take(server):
    talk = RemoteConversation(f"http://127.0.0.1:{server.server_port}/v1/", "key")
    assert "".join(talk.ask("one", Sampling(), 5)) == "messages: 1"
    assert server.seen[0][0] == "/v1/chat/completions"


@pytest.fixture
def raw():
    """The address of a server that says what it is told, to the letter, whatever it is asked."""
    with create_server(("127.0.0.1", 0)) as link:
        def says(answer: bytes) -> str:
            def run() -> None:
                with link.accept()[0] as client:
                    while b"\r\n\r\n" not in client.recv(1 << 16):
                        pass
                    client.sendall(answer)
                    client.shutdown(SHUT_WR)
                    while client.recv(1 << 16):  # what is left unread would cut the answer short
                        pass
            threading.Thread(target=run, daemon=True).start()
            return f"http://127.0.0.1:{link.getsockname()[1]}"

        yield says


FINE = b"HTTP/1.1 200 OK\r\n"
PIECE = b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'


@pytest.mark.parametrize("answer, said", [
    (FINE + b"\r\n<html>", r"ValueError\(b'<html>'\)"), (b"SSH-2.0\r\n", r"BadStatusLine\('SSH-2.0\\r\\n'\)"),
    (FINE + b"\r\ndata: x\n", r"JSONDecodeError\(.*\)"), (FINE + b"\r\ndata: [1]\n", r"ValueError\(\[1\]\)"),
    (FINE + b"\r\n\xff\n", r"UnicodeDecodeError\(.*\)"),
], ids=["html", "ssh", "no json", "no event", "no text"])
def test_others_than_our_servers(raw, answer, said):
    talk = RemoteConversation(raw(answer))
    with pytest.raises(ServerError, match=r"^a server that speaks OpenAI's interface was wanted at http://127.0.0.1:"
                                          rf"\d+; it sent something else \({said}\): check the address$"):
        list(talk.ask("one", Sampling(), 5))


@pytest.mark.parametrize("answer", [
    b"\r\n" + PIECE, b"Content-Length: 500\r\n\r\n" + PIECE,
    b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(PIECE), PIECE),
], ids=["closed", "short", "chunked"])
def test_a_reply_that_breaks_off(raw, answer):
    talk, heard = RemoteConversation(raw(FINE + answer)), []
    with pytest.raises(ServerError, match=r"^a whole reply of http://127.0.0.1:\d+ was wanted; it broke off: ask "
                                          r"again$"):
        heard.extend(talk.ask("one", Sampling(), 5))
    assert talk.messages[-1] == {"role": "assistant", "content": "word"}


@pytest.mark.parametrize("answer, said", [
    (b'data: {"error": {"message": "out of memory"}}\n', "out of memory"), (b'data: {"error": "gone"}\n', "gone"),
])
def test_errors_within_a_reply(raw, answer, said):
    with pytest.raises(ServerError, match=f"^{said}$"):
        list(RemoteConversation(raw(FINE + b"\r\n: still working\n\nevent: x\n" + answer)).ask("one", Sampling(), 5))


def test_nobody_there():
    talk = RemoteConversation("http://127.0.0.1:9")
    with pytest.raises(ServerError, match=r"^a server was wanted at http://127.0.0.1:9; it cannot be reached \(.*\): "
                                          r"start one with `wordline serve IMAGE`$"):
        list(talk.ask("one", Sampling(), 5))
