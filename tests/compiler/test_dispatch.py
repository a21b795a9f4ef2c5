"""Every registered kernel computes the model, formulas become the passes they should, and the cheapest way is taken."""

from dataclasses import replace

import numpy as np
import pytest

from compiler import compile as compiler
from compiler import dispatch
from compiler.build import build_graph
from compiler.choices import Choices
from compiler.emitter import Emitter, Pool
from compiler.expression import Add, Apply, Mul, Scalar, Vector, emit
from compiler.frontends.load import load_model
from compiler.fuse import fuse
from compiler.ir import Op
from compiler.kernels.registry import kernels_of
from compiler.lower import KERNEL_MODULES
from compiler.synchronize import synchronize
from hw.config import preset
from hw.isa import Instruction, Opcode, encode
from hw.memorymap import Space
from hw.timing import latencies
from runtime.device import Device
from runtime.session import Session
from sim.functional import FunctionalDevice
from tests.models.random_gguf import write_random_model

assert KERNEL_MODULES
TINY = preset("tiny")
KERNELS = [(op, k.name) for op in Op for k in kernels_of(op)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_random_model(path, seed=1, context=256)
    return path


def _logits(model, choices: Choices, monkeypatch) -> np.ndarray:
    monkeypatch.setattr(dispatch, "choose", lambda *a: (choices, []))
    image = compiler.compile_model(model, TINY, context=64)
    with Device.open("model:", TINY) as device:
        device.load(image)
        with Session(device, image) as session:
            return np.array(list(session.score([int(i) for i in np.random.default_rng(3).integers(0, 413, 12)])))


@pytest.fixture(scope="module")
def default(model):
    with pytest.MonkeyPatch.context() as patch:
        return _logits(model, Choices(), patch)


@pytest.mark.parametrize("op, name", KERNELS, ids=[f"{op.value}-{name}" for op, name in KERNELS])
def test_every_kernel_computes_the_model(op, name, model, default, monkeypatch):
    got = _logits(model, Choices().with_kernel(op, name), monkeypatch)
    # Kernels of one operation round in different places: they agree to a fraction of the quantization noise.
    assert np.sqrt(((got - default) ** 2).mean() / (default ** 2).mean()) < 0.03


@pytest.mark.parametrize("choices", [
    Choices(split=()), Choices(split=(1, 2)), Choices(chunk=8), Choices(chunk=32), Choices(heads=1),
    Choices(order="urgent"),
], ids=str)
def test_cuts_and_orders_change_no_bit(choices, model, default, monkeypatch):
    assert np.array_equal(_logits(model, choices, monkeypatch), default)


def test_there_are_hand_written_and_generated_kernels():
    origins = {k.origin for op in Op for k in kernels_of(op)}
    assert origins == {"hand", "generated"}
    assert all(k.meaning for op in Op for k in kernels_of(op))


def test_the_cheapest_is_taken(model):
    source = load_model(model)
    image = compiler.compile_source(source, TINY, context=64)
    assert image.report["decisions"]["contexts up to 64"]
    small = fuse(build_graph(replace(source.shape, layers=2)))
    geometry = compiler.Geometry(source.shape, TINY, 64, 1)
    placement = compiler.place(geometry, lambda name: source.weights[name].blocks())
    numbers = {"exp2": 1, "recip": 2, "rsqrt": 3, "scale": 4, "silu": 5}
    best, decisions = dispatch.choose(small, placement, numbers, 64, 0)
    for decision in decisions:
        costs = {a.name: a.cycles for a in decision.alternatives}
        assert costs[decision.taken] == min(c for c in costs.values() if c is not None), str(decision)
    output = next(d for d in decisions if d.what == "output")
    assert output.taken.startswith("argmax while draining"), "the fused kernel wins, and by more than nothing"
    assert len({a.cycles for a in output.alternatives}) == 2
    ranks, found = dispatch.search(small, placement, numbers, 64, 0, best, attempts=20)
    assert found.bound < found.after <= found.before and sorted(ranks["layer"]) == list(range(len(ranks["layer"])))


def _vectors() -> tuple[FunctionalDevice, np.ndarray]:
    device = FunctionalDevice(TINY)
    values = np.random.default_rng(7).standard_normal((3, 8, TINY.tiles)).astype(np.float32)
    for base, value in zip((0, 8, 16), values, strict=True):
        device.write(Space.SCRATCH, value.view(np.uint32), base)
    device.write(Space.SCALARS, np.array([3.0, 0.25], np.float32).view(np.uint32))
    return device, values


X, Y, Z, S, R = Vector("scratch", 0), Vector("scratch", 8), Vector("scratch", 16), Scalar(0), Scalar(1)
FORMULAS = {
    "x + y": (Add(X, Y), 1, lambda x, y, z: x + y),
    "(x*y + z) * s": (Mul(Add(Mul(X, Y), Z), S), 2, lambda x, y, z: (x * y + z) * np.float32(3)),
    "(x*s + y) * x": (Mul(Add(Mul(X, S), Y), X), 1, lambda x, y, z: (x * np.float32(3) + y) * x),
    "x*x": (Mul(X, X), 1, lambda x, y, z: x * x),
    "x*s*r": (Mul(Mul(X, S), R), 1, lambda x, y, z: x * np.float32(3) * np.float32(0.25)),
    "(x + y) * (y + z)": (Mul(Add(X, Y), Add(Y, Z)), 3, lambda x, y, z: (x + y) * (y + z)),
    "identity(x + y) * z": (Mul(Apply(0, Add(X, Y)), Z), 2, lambda x, y, z: (x + y) * z),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_become_passes(name):
    formula, passes, function = FORMULAS[name]
    device, values = _vectors()
    e = Emitter(TINY, {})
    e.window("test")
    pool = Pool("words of scratch", 100, 200)
    assert emit(e, pool, formula, 8, {"w": 1, "w_word": 300, "w_i": 1}) == passes
    final = synchronize(e.windows[0].ops, {}, TINY, latencies(TINY))
    device.write(Space.MICROCODE, encode([*final, Instruction(Opcode.HALT)]))
    device.run(0)
    got = device.read(Space.SCRATCH, 300, 8).view(np.float32)
    assert np.array_equal(got, function(*values))
