"""Text from tokens: whatever the tokens and the stops, what is given piece by piece is the text up to the stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.job import Token
from runtime.server.text import Piece, TextStream
from runtime.tokenizer import StreamDecoder


class Bytes:
    """A tokenizer whose tokens are pieces of a text's bytes."""

    special_ids = frozenset()
    _strips_first_space = False

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def token_bytes(self, index: int) -> bytes:
        return self.tokens[index]

    def stream(self) -> StreamDecoder:
        return StreamDecoder(self)


def streamed(tokens: list[bytes], stops: tuple[str, ...]) -> tuple[list[Piece], bool]:
    text, pieces = TextStream(Bytes(tokens), stops), []
    for n in range(len(tokens)):
        pieces.append(text.push(Token(n)))
        if text.stopped:
            break
    return [*pieces, text.finish()], text.stopped


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(p, len(data)) for p in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(ends, ends[1:], strict=False)]


@settings(max_examples=300, deadline=None)
@given(st.text("abé…", max_size=30), st.lists(st.integers(0, 60), max_size=20), st.text("abé", min_size=1, max_size=4))
def test_text_up_to_the_stop(text, places, stop):
    tokens = cut(text.encode(), places)
    pieces, stopped = streamed(tokens, (stop,))
    assert "".join(p.text for p in pieces) == text.partition(stop)[0]
    assert stopped == (stop in text)
    placed = [p for piece in pieces for p in piece.tokens]
    assert [p.token.index for p in placed] == list(range(len(placed)))
    if not stopped:
        assert len(placed) == len(tokens)
        offsets = [len(b"".join(tokens[:n]).decode(errors="ignore")) for n in range(len(tokens))]
        assert [p.offset for p in placed] == offsets


@pytest.mark.parametrize("tokens, stops, given_", [
    (["ab", "c", "d"], (), ["ab", "c", "d", ""]),
    (["ab", "c", "d"], ("bcx",), ["a", "", "bcd", ""]),  # held until it cannot be the stop
    (["ab", "c", "d"], ("bc",), ["a", "", ""]),
    (["ab", "c"], ("cd",), ["ab", "", "c"]),  # what is held comes at the end
    (["abcd"], ("d", "bc"), ["a", ""]),  # the stop that begins first
    (["a", "b", "c"], ("abc", "b"), ["", "a", ""]),  # the stop that is complete first
])
def test_pieces(tokens, stops, given_):
    pieces, _ = streamed([t.encode() for t in tokens], stops)
    assert [p.text for p in pieces] == given_


def test_a_prompt_may_hold_the_stop():
    text = TextStream(Bytes([b"a stop", b" b", b"stop"]), ("stop",))
    assert text.push(Token(0, of_prompt=True)).text == "a stop"
    assert text.push(Token(1)).text == " b" and not text.stopped
    assert text.push(Token(2)) == Piece() and text.stopped
