"""The command line on a small random model: what it reports, and how it refuses."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wordline
from hw.image import ImageError, load, save
from hw.isa import decode
from runtime.tokenizer import Tokenizer
from tests.models.random_gguf import write_random_model

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_random_model(tmp_path_factory.mktemp("model") / "small.gguf").path


@pytest.fixture(scope="module")
def image(model):
    path = model.with_suffix(".wl")
    assert command("compile", model, "--config", "tiny", "--context", "128", "-o", path).exit_code == 0
    return path


def command(*words, stdin=None):
    return CliRunner().invoke(wordline.app, [str(w) for w in words], input=stdin)


def report(*words):
    result = command(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*words) -> str:
    """The one line of a command that ends with exit code 2."""
    result = command(*words)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert result.stderr.count('\n') == 1, result.stderr
    line = result.stderr.rstrip('\n')
    return line.removeprefix("wordline: ")


@pytest.mark.parametrize("name", [c.name or c.callback.__name__ for c in wordline.app.registered_commands])
def test_every_command_has_help(name):
    result = command(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: root {name}" in result.stdout


def test_no_command_shows_all():
    text = command("--help").stdout
    for name in ("fetch", "compile", "run", "chat", "sim", "inspect", "disasm", "profile", "devices", "evaluate", "isa",
                 "verilog", "demo", "bench"):
        assert f" {name} " in text


def test_compile_reports_and_repeats(model, image, tmp_path):
    again = tmp_path / "again.wl"
    facts = report("compile", model, "--config", "tiny", "--context", "128", "-o", again)
    assert facts["configuration"]["name"] == "tiny"
    assert facts["kv"] == {"slots": 1, "context": 128}
    assert again.read_bytes() == image.read_bytes()


def test_compile_prints_a_stage(model, tmp_path):
    result = command("compile", model, "-c", "tiny", "-o", tmp_path / "x.wl", "--print-after", "build")
    assert "; after build\n" in result.stdout
    line = refusal("compile", model, "-c", "tiny", "-o", tmp_path / "y.wl", "--print-after", "nonsense")
    assert line.startswith("stage 'nonsense' does not exist; stages are build, ")
    assert not (tmp_path / "y.wl").exists()


def test_inspect_says_what_the_image_is(image):
    facts, program = report("inspect", image), load(image)
    assert facts["configuration"]["fingerprint"] == program.config.fingerprint
    assert facts["used"]["microcode"] == len(program.microcode)
    assert set(facts["entries"]) == set(program.entries)
    assert "tiny" in command("inspect", image).stdout


def test_disasm_lists_every_word_once(image):
    lines, program = command("disasm", image).stdout.splitlines(), load(image)
    words = {int(line.split()[0]): line for line in lines if line.split()[0].isdigit()}
    assert sorted(words) == list(range(len(program.microcode)))
    for address, instruction in enumerate(decode(program.microcode)):
        assert words[address].endswith(str(instruction))
    assert [line[:-1] for line in lines if line.endswith(":") and ";" not in line] == sorted(
        program.entries, key=lambda name: program.entries[name].address)


def test_disasm_of_one_entry_ends_at_its_halt(image):
    program = load(image)
    lines = command("disasm", image, "--entry", "decode@128").stdout.splitlines()
    assert lines[0] == "decode@128:"
    assert f"{program.entries['decode@128'].address:6}  " in "\n".join(lines[:3])
    opcodes = [line.split()[1] for line in lines if line.split()[0].isdigit()]
    assert [n for n, opcode in enumerate(opcodes) if opcode == "halt"] == [len(opcodes) - 1]


@pytest.mark.parametrize("kind, position", [("decode", 0), ("decode", 100), ("prefill", 31)])
def test_profile_accounts_for_every_cycle(image, kind, position):
    facts = report("profile", image, "--kind", kind, "--position", position)
    for engine in ("matrix", "vector"):
        spent = sum(f[engine]["steps"] + sum(f[engine]["stalled"].values()) for f in facts["operators"].values())
        assert spent + facts["after_last"][engine] == facts["cycles"]
    assert sum(f["row_reads"] for f in facts["operators"].values()) == facts["row_reads"]
    assert facts["row_bound"] <= facts["row_reads"] <= facts["cycles"]


def test_run_is_the_same_every_time_and_with_a_seed(image):
    def text(*options):
        return report("run", image, "what is in the array?", "-n", "8", *options)["text"]

    assert text() == text() == text("--temperature", "0", "--seed", "3")
    warm = ("--temperature", "1.5", "--top-k", "50")
    assert text(*warm, "--seed", "1") == text(*warm, "--seed", "1") != text(*warm, "--seed", "2")


def test_run_streams_the_text_that_json_reports(image):
    facts = report("run", image, "hello", "-n", "6")
    assert command("run", image, "hello", "-n", "6").stdout == facts["text"] + "\n"
    assert command("run", image, "-", "-n", "6", stdin="hello").stdout == facts["text"] + "\n"
    assert facts["generation"]["tokens"] <= 6
    assert facts["generation"]["cycles_per_token"] > 0


def test_raw_has_no_template(image):
    raw = report("run", image, "hello", "-n", "2", "--raw")["prompt"]["tokens"]
    assert raw < report("run", image, "hello", "-n", "2")["prompt"]["tokens"]


def test_chat_of_one_turn_is_run(image):
    assert command("chat", image, "--prompt", "hello", "-n", "6").stdout == \
        command("run", image, "hello", "-n", "6").stdout


def test_chat_ends_at_an_empty_line(image):
    result = command("chat", image, "-n", "4", stdin="hello\nand now?\n\nnever read\n")
    assert result.exit_code == 0
    assert result.stdout.count("> ") == 3


def test_bench_counts_what_was_asked_for(image):
    facts = report("bench", image, "--prompt-tokens", "5", "-n", "3")
    # The last token of a prompt is the first to be decoded.
    assert (facts["prompt"]["tokens"], facts["generation"]["tokens"]) == (4, 3)
    assert facts["configuration"] == "tiny"


def test_evaluate_judges_the_image_against_its_own_file(model, image, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the rows hold the weights and the word line opens a row. " * 5)
    facts = report("evaluate", model, image, "--text", text, "-n", "60")
    assert facts["tokens"] == 60
    assert 0 <= facts["mean_kl"] < 0.01 and facts["top1"] > 0.9
    assert abs(facts["perplexity_change"]) < 0.05


def test_sim_of_the_model_against_itself(image):
    facts = report("sim", image, "--device", "model:", "-n", "2")
    assert facts["identical"] and facts["difference"] is None
    assert facts["tokens"] == 2
    assert facts["commands"] == facts["prompt_tokens"] + 1  # the last token is made, not processed


def test_isa_is_the_page_in_docs(tmp_path):
    page = (ROOT / "docs" / "isa.md").read_text()
    assert command("isa").stdout == page
    assert command("isa", "-o", tmp_path / "isa.md").exit_code == 0
    assert (tmp_path / "isa.md").read_text() == page


def test_devices_passes_the_functional_model():
    (model,) = [d for d in report("devices") if d["device"].startswith("model:")]
    assert model["state"] == "PASS"


def test_unknown_names_are_refused_with_the_known_ones(model, image):
    assert refusal("run", image, "x", "-d", "fpgo:").startswith(
        "device 'fpgo:' does not exist; devices are model:PRESET")
    assert refusal("compile", model, "-c", "w17") == (
        "preset 'w17' does not exist; known presets are tiny, w16, ecp5, paper")
    assert refusal("fetch", "llama-9t").endswith("'llama-9t' came: choose one of these")
    assert refusal("disasm", image, "--entry", "decode@9").startswith(
        "entry point 'decode@9' does not exist; this image has ")


def test_files_that_are_missing_or_damaged(model, image, tmp_path):
    missing = tmp_path / "missing"
    assert refusal("inspect", missing) == f"{missing}: no such file; make an image with `wordline compile`"
    assert refusal("compile", missing) == (f"a model file or one of the names smollm2-135m was wanted; '{missing}' is "
                                           "neither: check it")
    for source, words in ((image, ("inspect",)), (model, ("compile", "-c", "tiny", "-o", tmp_path / "x.wl"))):
        cut = tmp_path / f"cut{source.suffix}"
        cut.write_bytes(source.read_bytes()[:-1000])
        assert refusal(*words, cut).startswith(str(cut))
        assert refusal(*words, __file__).startswith(__file__)
    assert not (tmp_path / "x.wl").exists()


def test_a_model_too_big_for_the_preset(tmp_path):
    big = write_random_model(tmp_path / "big.gguf", hidden=256, heads=8, layers=4, ffn=1024).path
    line = refusal("compile", big, "-c", "tiny", "-o", tmp_path / "big.wl")
    assert "'tiny'" in line and "rows" in line
    assert not (tmp_path / "big.wl").exists()


def test_a_prompt_that_is_too_long(image):
    tokens = len(Tokenizer(load(image).text).encode("row " * 200))
    assert refusal("run", image, "--raw", "row " * 200) == (
        f"the prompt has {tokens} tokens; this image holds 128: compile with --context {tokens + 1} or more, or "
        "shorten the prompt")


def test_a_full_context_shows_the_text_before_the_error(image):
    result = command("run", image, "hello", "--raw", "-n", "500")
    assert result.exit_code == 2
    assert result.stdout
    assert result.stderr.splitlines()[-1].startswith("wordline: the context of 128 tokens is full after ")


def test_an_image_for_another_configuration(image):
    line = refusal("run", image, "hello", "-d", "model:ecp5")
    assert line.startswith("configuration 'tiny' (")


def test_an_image_of_another_file_is_not_evaluated(image, tmp_path):
    other = write_random_model(tmp_path / "other.gguf", seed=5).path
    assert refusal("evaluate", other, image).startswith(f"{image} was compiled from a file with SHA-256 ")


def test_interruption_is_quiet_and_leaves_no_file(model, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(wordline, "compile_model", interrupted)
    result = command("compile", model, "-c", "tiny", "-o", tmp_path / "x.wl")
    assert result.exit_code == 130
    assert result.stderr == "\nwordline: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(model, image):
    program = load(image)
    with pytest.raises(ImageError, match=r"^/proc/none/x\.wl: the image could not be written \(No such file"):
        save(program, "/proc/none/x.wl")
    line = refusal("compile", model, "-c", "tiny", "-o", "/proc/none/x.wl")
    assert line.startswith("/proc/none/x.wl: the image could not be written (")


def test_an_image_onto_a_folder(model, image, tmp_path):
    line = refusal("compile", model, "-c", "tiny", "-o", tmp_path)
    assert line == f"a file to write the image to was wanted; {str(tmp_path)!r} is a folder: name a file in it"
    assert refusal("inspect", tmp_path) == (
        f"{tmp_path}: a Wordline image was wanted; this is a folder: name the file in it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words, line", [
    (("compile", "x.gguf", "--context", "0"), "Invalid value for '--context': "),
    (("compile", "x.gguf", "-O", "9"), "Invalid value for '-O': "),
    (("run", "x.wl", "hi", "-n", "none"), "Invalid value for '--max-tokens' / '-n': "),
    (("run", ), "Missing argument 'IMAGE'; see `root run --help`"),
    (("chat", "--server"), "Option '--server' requires an argument; see `root chat --help`"),
    (("inspect", "x.wl", "--nonsense"), "No such option: --nonsense"),
    (("nonsense",), "No such command 'nonsense'; see "),
    (("--nonsense",), "No such option: --nonsense; see `root --help`"),
])
def test_a_command_written_wrongly_is_one_line(words, line):
    said = refusal(*words)
    assert said.startswith(line)
    assert "--help`" in said


@pytest.mark.parametrize("option, value", [
    ("--temperature", "-1"), ("--temperature", "nan"), ("--top-k", "-1"), ("--top-p", "0"), ("--min-p", "5"),
    ("--seed", "-1")])
def test_sampling_out_of_range_is_refused_before_a_device_is_opened(image, option, value):
    assert f"got {value}" in refusal("run", image, "hi", option, value, "-d", "none:")


def test_a_text_too_short_to_judge_by(model, image, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("")
    assert refusal("evaluate", model, image, "--text", text) == (
        f"a text of at least 2 tokens was wanted; {text} has 0: give a longer one")
    text.write_bytes(b"\xff\xfe")
    assert refusal("evaluate", model, image, "--text", text).startswith("text in UTF-8 was wanted; ")


def test_verilog_of_a_device_too_large_for_it(tmp_path):
    assert refusal("verilog", "-c", "paper", "-o", tmp_path) == (
        "Verilog is made of devices of 1 to 32 tiles; 'paper' has 256: use a smaller preset")


def test_json_stays_json_while_a_stage_is_printed(model, tmp_path):
    report("compile", model, "-c", "tiny", "--no-check", "-O", "1", "-o", tmp_path / "x.wl", "--print-after", "build")


def test_a_device_without_time_runs(image):
    result = command("run", image, "hi", "-n", "2", "-d", "null:")
    assert result.exit_code == 0, result.exception
    assert result.stderr.endswith(" 0 cycles per token\n")


def test_a_map_that_cannot_be_written_prints_nothing(image, tmp_path):
    assert "Is a directory" in refusal("inspect", image, "--map", tmp_path)


@pytest.mark.parametrize("command_line", [["wordline_start"], ["wordline"]])
def test_a_reader_that_leaves_early_is_no_error(image, command_line):
    with subprocess.Popen([sys.executable, "-m", *command_line, "disasm", str(image)], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        listing.stdout.close()
        assert listing.stderr.read() == b""


def test_ctrl_c_while_loading_is_quiet(tmp_path):
    """An interruption from inside an import, where it comes from when Python is still loading."""
    (tmp_path / "wordline.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run([sys.executable, "-c", "import wordline_start; wordline_start.main()"], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, check=False,
                          cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nwordline: interrupted\n")


def test_the_script_itself_prints_one_line_and_ends_with_two(tmp_path):
    done = subprocess.run([sys.executable, "-m", "wordline", "inspect", str(tmp_path / "none.wl")], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"wordline: {tmp_path / 'none.wl'}: no such file; make an image with `wordline compile`\n"


def test_a_missing_compiler_for_the_simulator_is_named(image, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal("sim", image) == (
        "simulation needs 'g++' on the path, which has none; install a C++20 compiler (Debian: apt install g++)")


def test_ctrl_c_at_the_prompt_ends_quietly(image, interruptible):
    with subprocess.Popen([sys.executable, "-m", "wordline", "chat", str(image)], cwd=ROOT, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as chat:
        assert chat.stdout.read(2) == "> "
        chat.send_signal(signal.SIGINT)
        out, err = chat.communicate(timeout=60)
    assert (chat.returncode, out, err) == (130, "", "\nwordline: interrupted\n")
