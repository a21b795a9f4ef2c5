"""The folder that `wordline vllm` writes: what it says, and that its tokenizer and template are the image's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from typer.testing import CliRunner

import wordline
from compiler.compile import compile_model
from hw.config import preset
from hw.errors import WordlineError
from hw.image import Image, save
from runtime.chat_template import ChatTemplate
from runtime.tokenizer import Tokenizer
from runtime.vllm.folder import digest, write_folder
from tests.models.random_gguf import write_random_model

TEXT = "the memory holds <|im_start|>user"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    path = write_random_model(tmp_path_factory.mktemp("folder") / "random.gguf", layers=1).path
    return compile_model(path, preset("tiny"), context=64, slots=2, effort=1, checked=False)


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text())


def test_the_command(image, tmp_path):
    save(image, tmp_path / "small.wl")
    result = CliRunner().invoke(wordline.app, ["vllm", str(tmp_path / "small.wl"), "--device", "rtl:", "--json"])
    folder = tmp_path / "small-vllm"
    assert result.exit_code == 0 and json.loads(result.stdout) == {
        "folder": str(folder), "device": "rtl:",
        "files": ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]}
    config = read(folder, "config.json")
    assert Path(config["image"]) == (tmp_path / "small.wl").resolve()
    assert (config["model_type"], config["device"], config["slots"]) == ("wordline", "rtl:", 2)
    assert config["max_position_embeddings"] == image.kv.context and config["vocab_size"] == image.logits[1]
    assert config["eos_token_id"] == read(folder, "generation_config.json")["eos_token_id"] == image.text["eos"]


def test_a_device_that_does_not_exist(image, tmp_path):
    save(image, tmp_path / "small.wl")
    result = CliRunner().invoke(wordline.app, ["vllm", str(tmp_path / "small.wl"), "--device", "modle:"])
    assert result.exit_code == 2 and not (tmp_path / "small-vllm").exists()
    assert result.stderr.startswith("wordline: device 'modle:' does not exist; devices are model:PRESET, rtl:PRESET, ")


@pytest.mark.parametrize("add_bos", [False, True])
def test_texts_become_the_same_tokens(image, tmp_path, add_bos):
    image = replace(image, text={**image.text, "add_bos": add_bos, "bos": 1})
    write_folder(image, tmp_path / "x.wl", tmp_path)
    ids = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(TEXT).ids
    assert ids == Tokenizer(image.text).encode(TEXT)


@pytest.mark.parametrize("template", ["{{ bos_token }}{{ messages[0]['content'] }}", "{{ messages[0]['content'] }}"])
def test_a_conversation_begins_once(image, tmp_path, template):
    image = replace(image, text={**image.text, "add_bos": True, "bos": 1, "chat_template": template})
    write_folder(image, tmp_path / "x.wl", tmp_path)
    facts = read(tmp_path, "tokenizer_config.json")
    text = ChatTemplate(facts["chat_template"], facts["bos_token"]).render([{"role": "user", "content": TEXT}])
    own = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = own.encode(text, add_special_tokens=False).ids
    assert ids == Tokenizer(image.text).encode(TEXT) and ids.count(1) == 2  # its own, and the one in the text


def test_other_images_have_other_digests(image):
    others = [replace(image, model={**image.model, "name": "other"}), replace(image, kv=replace(image.kv, slots=9)),
              replace(image, text={**image.text, "eos": [5]}), replace(image, config=preset("w16"))]
    assert len({digest(each) for each in (image, *others)}) == 5


def test_refusals(image, tmp_path):
    with pytest.raises(WordlineError, match=r"^a tokenizer was wanted; this image has none: "):
        write_folder(replace(image, text={}), tmp_path / "x.wl", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(WordlineError, match=r"file: the folder could not be written \(File exists\): name another with "
                                            r"--output$"):
        write_folder(image, tmp_path / "x.wl", tmp_path / "file")
