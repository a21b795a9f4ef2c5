"""GGUF files: sound ones read as written, damaged and foreign ones refused in one clear line."""

import re
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from compiler.errors import ModelFileError
from compiler.frontends.gguf import GgufFile
from compiler.frontends.load import load_model
from compiler.source import weight_names
from tests.models.random_gguf import CHAT_TEMPLATE, RandomModel, write_random_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> RandomModel:
    return write_random_model(tmp_path_factory.mktemp("gguf") / "random.gguf")


def refused(path: Path, data: bytes) -> str:
    """The message with which a file of these bytes is refused, without its path."""
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as error:
        load_model(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_header_equals_the_gguf_library(model: RandomModel) -> None:
    file = GgufFile.open(model.path)
    reader = gguf.GGUFReader(model.path)
    keys = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert file.version == reader.fields["GGUF.version"].contents()
    assert list(file.metadata) == list(keys)
    for name, field in keys.items():
        value = file.metadata[name]
        assert (
            list(value) if not isinstance(value, (str, int, float, bool)) else value
        ) == field.contents(), name
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = file.tensors[tensor.name]
        assert ours.shape == tuple(int(n) for n in tensor.shape[::-1])
        assert ours.type == tensor.tensor_type.name
        assert ours.view.tobytes() == tensor.data.tobytes()


def test_shape_tokenizer_and_template(model: RandomModel) -> None:
    source = load_model(model.path)
    for name in (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn",
        "vocab",
        "context",
        "rope_theta",
    ):
        assert getattr(source.shape, name) == getattr(model, name), name
    assert not source.shape.tied_embeddings
    assert source.tokenizer is not None
    assert list(source.tokenizer.tokens) == model.tokens
    assert source.tokenizer.end_ids == (2,)
    assert source.chat_template == CHAT_TEMPLATE


def test_weights_have_neutral_names_and_half_split_rotary_order(model: RandomModel) -> None:
    source = load_model(model.path)
    assert list(source.weights) == list(weight_names(source.shape)) and set(source.weights) == set(
        model.weights
    )
    # A step of the coarsest type here is 1/15 of a block's range.
    for name, weight in source.weights.items():
        values = weight.dequantize()
        assert values.shape == weight.shape == model.weights[name].shape
        assert np.abs(values - model.weights[name]).max() <= np.ptp(model.weights[name]) / 15, name


def test_tied_embeddings(tmp_path: Path) -> None:
    written = write_random_model(tmp_path / "tied.gguf", tied=True)
    source = load_model(written.path)
    assert source.shape.tied_embeddings and "output" not in source.weights


def test_sha256_is_that_of_the_file(model: RandomModel) -> None:
    import hashlib

    assert load_model(model.path).sha256 == hashlib.sha256(model.path.read_bytes()).hexdigest()


def test_same_arguments_write_the_same_bytes(model: RandomModel, tmp_path: Path) -> None:
    again = write_random_model(tmp_path / "again.gguf")
    assert again.path.read_bytes() == model.path.read_bytes()


def test_every_cut_is_refused_by_name(model: RandomModel, tmp_path: Path) -> None:
    data = model.path.read_bytes()
    header = GgufFile.open(model.path).tensors["token_embd.weight"].offset
    cuts = [4, 7, 8, 23, *range(24, header, 97), header, len(data) - 1]
    for cut in cuts:
        assert "cut short or damaged" in refused(tmp_path / "cut.gguf", data[:cut]), cut


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_to_the_header_raises_nothing_else(
    model: RandomModel, tmp_path: Path, seed: int
) -> None:
    data = model.path.read_bytes()
    header = GgufFile.open(model.path).tensors["token_embd.weight"].offset
    rng = np.random.default_rng(seed)
    path = tmp_path / "damaged.gguf"
    outcomes = {"refused": 0, "read": 0}
    for _ in range(60):
        damaged = bytearray(data)
        for at in rng.integers(4, header, 3):
            damaged[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
        path.write_bytes(damaged)
        try:
            load_model(path)
            outcomes["read"] += 1  # the damage hit a token's spelling, say
        except ModelFileError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 0, f"seed {seed}"


def header(*, version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


MEND = "the file is damaged, bring it again"
CUT = "the file is cut short or damaged, bring it again"
ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8)

CASES = {
    "other magic": (
        b"PK\3\4rest",
        r"wanted a GGUF file, which begins with b'GGUF', found b'PK\x03\x04'; give a .gguf file",
    ),
    "empty": (b"", "wanted a GGUF file, which begins with b'GGUF', found b''; give a .gguf file"),
    "old version": (
        header(version=1),
        "wanted GGUF version 2 or 3, little endian, found version 1; "
        "convert the model again with a current tool",
    ),
    "big endian": (
        header(version=3 << 24),
        "wanted GGUF version 2 or 3, little endian, found a big-endian file; "
        "convert the model again with a current tool",
    ),
    "absurd count": (
        header(keys=1 << 60),
        f"wanted a count of keys that fits 24 bytes, found {1 << 60}; {CUT}",
    ),
    "absurd tensors": (header(tensors=9), f"wanted a count of tensors that fits 24 bytes, found 9; {CUT}"),
    "long string": (
        header(keys=1) + struct.pack("<Q", 1 << 62) + bytes(20),
        f"wanted {1 << 62} bytes of the name of key 0 at byte 32, "
        f"found the end of the file at byte 52; {CUT}",
    ),
    "value type": (
        header(keys=1) + text("key") + struct.pack("<I", 99) + bytes(8),
        f"wanted a value type from 0 to 12 for 'key', found 99; {MEND}",
    ),
    "long array": (
        header(keys=1) + text("key") + struct.pack("<IIQ", 9, 4, 1 << 61) + bytes(8),
        f"wanted {1 << 63} bytes of the array 'key' ({1 << 61} entries) at byte 51, "
        f"found the end of the file at byte 59; {CUT}",
    ),
    "string array": (
        header(keys=1) + text("key") + struct.pack("<IIQ", 9, 8, 2) + text("abc") + b"\xff" * 8,
        f"wanted 2 strings in 'key', found entry 1 running past the end of the file; {CUT}",
    ),
    "nested array": (
        header(keys=1) + text("key") + struct.pack("<IIQ", 9, 9, 1) + bytes(32),
        f"wanted numbers or strings in the array 'key', found value type 9; {MEND}",
    ),
    "twice": (
        header(keys=2) + (text("key") + struct.pack("<IB", 0, 1)) * 2,
        f"wanted every key once, found 'key' twice; {MEND}",
    ),
    "not text": (
        header(keys=1) + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(16),
        rf"wanted UTF-8 text as the name of key 0, found b'\xff\xfe'; {MEND}",
    ),
    "tensor type": (
        header(tensors=1) + text("t") + struct.pack("<IQIQ", 1, 32, 4, 0) + bytes(99),
        "wanted a known type of tensor 't' (F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, "
        "Q6_K, IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, I8, I16, I32, I64, F64, IQ1_M, "
        "BF16, TQ1_0, TQ2_0, MXFP4), found type number 4; convert the model to one of these types",
    ),
    "tensor rows": (
        header(tensors=1) + text("t") + struct.pack("<IQIQ", 1, 33, 8, 0) + bytes(99),
        f"wanted rows of tensor 't' in multiples of 32 (Q8_0), found shape (33,); {MEND}",
    ),
    "tensor dimensions": (
        header(tensors=1) + text("t") + struct.pack("<I", 9) + bytes(99),
        f"wanted 1 to 4 dimensions of tensor 't', found 9; {MEND}",
    ),
    "tensor end": (
        header(tensors=1) + text("t") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0) + bytes(99),
        f"wanted {4 << 80} bytes of tensor 't' at byte 96, found the end of the file at byte 164; {CUT}",
    ),
    "architecture": (
        header(keys=1) + ARCHITECTURE + text("mamba"),
        "wanted an architecture from ['llama'], found 'mamba'; use a model of a supported architecture",
    ),
    "no architecture": (
        header(),
        "wanted an architecture from ['llama'], found None; use a model of a supported architecture",
    ),
    "missing key": (
        header(keys=1) + ARCHITECTURE + text("llama"),
        "wanted key 'llama.embedding_length' (a whole number), found none; convert the model again",
    ),
    "wrong kind of key": (
        header(keys=2) + ARCHITECTURE + text("llama") + text("llama.embedding_length")
        + struct.pack("<If", 6, 0.5),
        "wanted a whole number as 'llama.embedding_length', found 0.5; convert the model again",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_damaged_and_foreign_files(tmp_path: Path, name: str) -> None:
    data, message = CASES[name]
    assert refused(tmp_path / "bad.gguf", data) == message


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path, found in (
        (tmp_path / "none.gguf", "none; check its name"),
        (tmp_path, "a folder; name the file in it"),
    ):
        with pytest.raises(
            ModelFileError, match=f"^{re.escape(f'{path}: wanted a model file, found {found}')}$"
        ):
            load_model(path)


FOREIGN = {
    "llama.expert_count": (8, "0 or nothing", "8"),
    "llama.attention.sliding_window": (4096, "0 or nothing", "4096"),
    "llama.attn_logit_softcapping": (50.0, "0.0 or nothing", "50.0"),
    "llama.logit_scale": (0.5, "nothing", "0.5"),
}


@pytest.mark.parametrize("key", FOREIGN)
def test_keys_that_change_the_computation(tmp_path: Path, key: str) -> None:
    value, wanted, found = FOREIGN[key]
    path = write_random_model(tmp_path / "foreign.gguf", layers=1, extra_keys={key: value}).path
    message = f"wanted {wanted} as {key!r}, found {found}; models that need this are not supported"
    assert refused(path, path.read_bytes()) == message


def test_unknown_rotary_scaling(tmp_path: Path) -> None:
    keys = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    path = write_random_model(tmp_path / "yarn.gguf", layers=1, extra_keys=keys).path
    assert refused(path, path.read_bytes()) == (
        "wanted 'none' or 'linear' as 'llama.rope.scaling.type', found 'yarn'; "
        "other rotary scalings are not supported"
    )


def test_linear_rotary_scaling_divides_the_frequencies(model: RandomModel, tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "linear.gguf", extra_keys={"llama.rope.scaling.factor": 4.0}).path
    scaled, plain = (load_model(p).shape.rope_frequencies() for p in (path, model.path))
    np.testing.assert_array_equal(scaled * 4, plain)


def test_a_bias_is_not_dropped_silently(model: RandomModel, tmp_path: Path) -> None:
    # Same length, so only the name changes: a gain becomes a bias.
    data = model.path.read_bytes().replace(b"blk.1.ffn_norm.weight", b"blk.1.ffn_gate.biases")
    assert refused(tmp_path / "bias.gguf", data) == (
        "wanted tensor 'blk.1.ffn_norm.weight' of shape (96,), found none; "
        "the file is damaged or not the architecture it claims"
    )
    data = model.path.read_bytes().replace(b"\0\0\0\0output.weight", b"\0\0\0\0extra_.weight")
    assert refused(tmp_path / "bias.gguf", data) == (
        "wanted no tensor but those of a plain llama model, found 'extra_.weight'; "
        "biases, experts and other additions are not supported"
    )
