"""The fp32 forward pass against a slow one written differently, and on the real model; the metrics."""

import numpy as np
import pytest

from compiler.frontends.load import load_model
from compiler.source import ModelSource
from compiler.tokenizer_json import image_text
from runtime.chat_template import ChatTemplate
from runtime.evaluation import EVALUATION_TEXT
from runtime.fetch import FetchError, fetch
from runtime.tokenizer import Tokenizer
from sim.metrics import Comparison, Perplexity, log_softmax
from sim.reference import forward, hidden_states, logits
from tests.models.random_gguf import write_random_model


@pytest.fixture(scope="module", params=[False, True], ids=["own output", "tied"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    path = tmp_path_factory.mktemp("reference") / "random.gguf"
    return load_model(write_random_model(path, heads=6, kv_heads=2, tied=request.param).path)


def slow_logits(source: ModelSource, tokens: list[int]) -> np.ndarray:
    """One token after another in float64, the file's interleaved rotary, complex numbers for the rotation."""
    shape = source.shape
    half = shape.head_dim // 2
    weights = {name: w.dequantize().astype(np.float64) for name, w in source.weights.items()}
    theta = shape.rope_theta ** (-2 * np.arange(half) / shape.head_dim)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return weights[name] * x / np.sqrt((x @ x) / len(x) + shape.norm_eps)

    def interleaved(x: np.ndarray, heads: int, position: int) -> np.ndarray:
        halves = x.reshape(heads, 2, half)
        return (halves[:, 0] + 1j * halves[:, 1]) * np.exp(1j * position * theta)

    keys: list[list[np.ndarray]] = [[] for _ in range(shape.layers)]
    values: list[list[np.ndarray]] = [[] for _ in range(shape.layers)]
    out = []
    for position, token in enumerate(tokens):
        x = weights["token_embedding"][token]
        for layer in range(shape.layers):
            name = f"layers.{layer}"
            y = norm(x, f"{name}.attention_norm")
            q = interleaved(weights[f"{name}.q"] @ y, shape.heads, position)
            keys[layer].append(interleaved(weights[f"{name}.k"] @ y, shape.kv_heads, position))
            values[layer].append((weights[f"{name}.v"] @ y).reshape(shape.kv_heads, -1))
            heads = []
            for head in range(shape.heads):
                shared = head // shape.group
                scores = np.array([(q[head] * k[shared].conj()).real.sum() for k in keys[layer]])
                p = np.exp(scores / np.sqrt(shape.head_dim))
                heads.append(sum(w * v[shared] for w, v in zip(p / p.sum(), values[layer], strict=True)))
            x = x + weights[f"{name}.o"] @ np.concatenate(heads)
            y = norm(x, f"{name}.ffn_norm")
            gate = weights[f"{name}.gate"] @ y
            x = x + weights[f"{name}.down"] @ (gate / (1 + np.exp(-gate)) * (weights[f"{name}.up"] @ y))
        out.append(weights.get("output", weights["token_embedding"]) @ norm(x, "final_norm"))
    return np.array(out)


def test_forward_equals_a_slow_one(source: ModelSource) -> None:
    tokens = np.random.default_rng(5).integers(0, source.shape.vocab, 19).tolist()
    wanted = slow_logits(source, tokens)
    chunks = dict(forward(source.shape, source.dequantized(), tokens, chunk=8))
    assert list(chunks) == [0, 8, 16]
    got = np.concatenate(list(chunks.values()))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_later_tokens_do_not_change_earlier_logits(source: ModelSource) -> None:
    weights = source.dequantized()
    long = logits(weights, hidden_states(source.shape, weights, [3, 1, 4, 1, 5, 9, 2, 6]))
    short = logits(weights, hidden_states(source.shape, weights, [3, 1, 4, 1]))
    np.testing.assert_allclose(long[:4], short, rtol=0, atol=1e-4)


def test_perplexity_of_uniform_logits_is_the_vocabulary() -> None:
    perplexity = Perplexity()
    perplexity.add(np.zeros((3, 7), np.float32), np.array([0, 3, 6]))
    perplexity.add(np.full((2, 7), 5, np.float32), np.array([1, 1]))
    assert perplexity.count == 5 and perplexity.value == pytest.approx(7)


def test_divergence_and_agreement() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    comparison = Comparison()
    comparison.add(np.log([p, p]) + 3, np.log([q, p]))
    assert comparison.mean_kl == pytest.approx(0.25 * np.log(2) / 2)
    assert comparison.top1 == 0.5
    np.testing.assert_allclose(np.exp(log_softmax(np.log(q) + 9)), q)


@pytest.fixture(scope="module")
def real() -> tuple[ModelSource, dict[str, np.ndarray]]:
    try:
        model = load_model(fetch("smollm2-135m"))
    except FetchError as error:
        pytest.skip(str(error))
    return model, model.dequantized()


@pytest.mark.model
def test_a_real_model_answers(real: tuple[ModelSource, dict[str, np.ndarray]]) -> None:
    model, weights = real
    tokenizer = Tokenizer(image_text(model.tokenizer, model.chat_template))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.encode(ChatTemplate(model.chat_template).render(question))
    tokens = list(prompt)
    while tokens[-1] not in tokenizer.eos or len(tokens) == len(prompt):
        assert len(tokens) < len(prompt) + 30, tokenizer.decode(tokens)
        tokens.append(int(logits(weights, hidden_states(model.shape, weights, tokens)[-1]).argmax()))
    assert "Paris" in tokenizer.decode(tokens[len(prompt) :])


@pytest.mark.model
def test_a_real_model_is_not_surprised_by_english(real: tuple[ModelSource, dict[str, np.ndarray]]) -> None:
    model, weights = real
    tokenizer = Tokenizer(image_text(model.tokenizer, model.chat_template))
    tokens = tokenizer.encode(EVALUATION_TEXT.read_text())[:300]
    perplexity = Perplexity()
    for start, rows in forward(model.shape, weights, tokens):
        following = np.array(tokens[start + 1 : start + 1 + len(rows)])
        perplexity.add(rows[: len(following)], following)
    assert perplexity.count == 299
    assert 5 < perplexity.value < 60  # a permuted query row or a wrong norm gives thousands
