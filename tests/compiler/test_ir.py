"""The graph keeps its rules, and says which one was broken."""

import re

import pytest

from compiler.build import build_graph
from compiler.fuse import fuse
from compiler.ir import Graph, GraphError, Op
from compiler.source import ModelShape

SHAPE = ModelShape(layers=2, hidden=96, heads=3, kv_heads=1, head_dim=32, ffn=160, vocab=413, context=64,
                   rope_theta=10000.0, norm_eps=1e-5, tied_embeddings=True)

FUSED = """\
token                        = token                                                              1
lookup                       = lookup       token                                                96  weight=token_embedding gain=layers.0.attention_norm
layers.0.q_k_v_product       = product      lookup                                              160  weights=[layers.0.q,layers.0.k,layers.0.v]
layers.0.rotate              = rotate       layers.0.q_k_v_product                             4x32
layers.0.store               = store        layers.0.rotate, layers.0.q_k_v_product            1x32
layers.0.attend              = attend       layers.0.rotate, layers.0.store                    3x32
layers.0.o_product           = product      layers.0.attend                                      96  weights=[layers.0.o]
layers.0.attention_residual  = residual     layers.0.o_product, lookup                           96  gain=layers.0.ffn_norm
layers.0.gate_up_product     = product      layers.0.attention_residual                         320  weights=[layers.0.gate,layers.0.up]
layers.0.gate_up             = gate         layers.0.gate_up_product                            160  function=silu
layers.0.down_product        = product      layers.0.gate_up                                     96  weights=[layers.0.down]
layers.0.ffn_residual        = residual     layers.0.down_product, layers.0.attention_residual         96  gain=layers.1.attention_norm
"""  # noqa: E501


def test_fused_graph_prints_as_expected():
    text = str(fuse(build_graph(SHAPE)))
    assert text.startswith(FUSED)
    assert text.splitlines()[-1] == (
        "logits                       = output       layers.1.ffn_residual                               413  "
        "weight=token_embedding")


def test_every_pass_is_shown_and_leaves_a_valid_graph():
    seen = []
    fuse(build_graph(SHAPE), lambda name, g: (g.verify(), seen.append((name, len(g.nx)))))
    assert [name for name, _ in seen] == [
        "merge_linears", "fuse_rotary", "fuse_cache", "fuse_attention", "fuse_gate", "fuse_residual", "fuse_output"]
    sizes = [size for _, size in seen]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]


def test_the_model_graph_has_only_the_models_operations():
    machine = {Op.LOOKUP, Op.PRODUCT, Op.ROTATE, Op.STORE, Op.ATTEND, Op.GATE, Op.RESIDUAL, Op.OUTPUT}
    assert not {n.op for n in build_graph(SHAPE)} & machine
    assert {n.op for n in fuse(build_graph(SHAPE))} <= machine | {Op.TOKEN}


def _graph() -> Graph:
    g = Graph()
    g.add("token", Op.TOKEN, [], (1,))
    g.add("x", Op.EMBED, ["token"], (8,), weight="w")
    return g


BROKEN = {
    "cycle": (lambda g: g.nx.add_edge("x", "token"), r"the graph has a cycle: .*"),
    "edge without input": (lambda g: (g.add("y", Op.ADD, ["x", "x"], (8,)), g.nx.add_edge("token", "y")),
                           r"inputs and edges differ at: y .*"),
    "arity": (lambda g: g.add("y", Op.ADD, ["x"], (8,)), r"add takes 2 inputs, at: y .*"),
    "attribute": (lambda g: g.add("y", Op.RMSNORM, ["x"], (8,)), r"rmsnorm needs the attributes \['gain'\], at: y .*"),
    "shape": (lambda g: g.add("y", Op.ROPE, ["x"], (0,)), r"a shape must be positive, at: y .*"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_verifier_names_the_fault(fault):
    g = _graph()
    g.verify()
    break_it, message = BROKEN[fault]
    break_it(g)
    with pytest.raises(GraphError, match=f"^{message}$"):
        g.verify()


def test_names_are_unique_and_inputs_exist():
    g = _graph()
    with pytest.raises(GraphError, match="^node 'x' is there already$"):
        g.add("x", Op.TOKEN, [], (1,))
    with pytest.raises(GraphError, match=re.escape("node 'y' wants the inputs ['z'], which do not exist")):
        g.add("y", Op.ROPE, ["z"], (1,))
    with pytest.raises(GraphError, match=re.escape("cannot remove 'token': ['x'] use it")):
        g.remove("token")
