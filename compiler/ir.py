"""The graph IR: a networkx directed graph of typed operations, printable and verified after every pass.

A node is one operation of one decode step (one token). Edges carry values; the order of a node's inputs is kept on
the node. Two vocabularies meet here: the model's (`embed` … `argmax`), and the machine's kernels that fusion makes of
them (`lookup` … `output`), each of which is a few passes of the two engines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import networkx as nx

from hw.errors import WordlineError

__all__ = ["Graph", "GraphError", "Node", "Op"]


class GraphError(WordlineError):
    """A graph that breaks a rule of the IR; always a fault of the compiler or of a frontend."""


class Op(StrEnum):
    """Every operation. The first group is the model's, the second the machine's."""

    TOKEN = "token"
    EMBED = "embed"
    RMSNORM = "rmsnorm"
    LINEAR = "linear"
    ROPE = "rope"
    CACHE_KEY = "cache_key"
    CACHE_VALUE = "cache_value"
    SCORES = "scores"
    SOFTMAX = "softmax"
    MIX = "mix"              # probabilities times cached values
    ACTIVATION = "activation"
    MULTIPLY = "multiply"
    ADD = "add"
    ARGMAX = "argmax"

    LOOKUP = "lookup"        # embedding row, times the next gain, quantized; sum of squares on the side
    PRODUCT = "product"      # one operand, several weight matrices, into accumulators
    ROTATE = "rotate"        # rotary on drained queries and keys, quantized
    STORE = "store"          # keys and values into the cache
    ATTEND = "attend"        # scores, softmax and mixture, by groups of heads, quantized
    GATE = "gate"            # activation(gate) * up while draining, quantized
    RESIDUAL = "residual"    # drained sum onto the residual, times the next gain, quantized
    OUTPUT = "output"        # the last product with its drain into logits and argmax


_INPUTS = {
    Op.TOKEN: 0, Op.EMBED: 1, Op.RMSNORM: 1, Op.LINEAR: 1, Op.ROPE: 1, Op.CACHE_KEY: 1, Op.CACHE_VALUE: 1,
    Op.SCORES: 2, Op.SOFTMAX: 1, Op.MIX: 2, Op.ACTIVATION: 1, Op.MULTIPLY: 2, Op.ADD: 2, Op.ARGMAX: 1,
    Op.LOOKUP: 1, Op.PRODUCT: 1, Op.ROTATE: 1, Op.STORE: 2, Op.ATTEND: 2, Op.GATE: 1, Op.RESIDUAL: 2, Op.OUTPUT: 1,
}

_NEEDS = {
    Op.EMBED: ("weight",), Op.RMSNORM: ("gain",), Op.LINEAR: ("weight",), Op.ACTIVATION: ("function",),
    Op.LOOKUP: ("weight", "gain"), Op.PRODUCT: ("weights",), Op.RESIDUAL: ("gain",), Op.OUTPUT: ("weight",),
    Op.GATE: ("function",),
}


@dataclass
class Node:
    """One operation: `name` is unique, `shape` is that of its value, `layer` is -1 outside the layers."""

    name: str
    op: Op
    inputs: list[str]
    shape: tuple[int, ...]
    layer: int = -1
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        extra = " ".join(f"{k}={_short(v)}" for k, v in self.attributes.items())
        return f"{self.name:28} = {self.op:12} {', '.join(self.inputs):44} {shape:>10}  {extra}".rstrip()


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


class Graph:
    """Operations of one decode step in a networkx graph (`self.nx`), with a stable topological order."""

    def __init__(self) -> None:
        self.nx = nx.DiGraph()

    def add(self, name: str, op: Op, inputs: list[str], shape: tuple[int, ...], layer: int = -1,
            **attributes: Any) -> str:
        """Add one operation and return its name; raises `GraphError` when the name is taken or an input missing."""
        if name in self.nx:
            raise GraphError(f"node {name!r} is there already")
        missing = [i for i in inputs if i not in self.nx]
        if missing:
            raise GraphError(f"node {name!r} wants the inputs {missing}, which do not exist")
        self.nx.add_node(name, node=Node(name, op, list(inputs), shape, layer, attributes), order=len(self.nx))
        self.nx.add_edges_from((i, name) for i in inputs)
        return name

    def __getitem__(self, name: str) -> Node:
        return self.nx.nodes[name]["node"]

    def __iter__(self) -> Iterator[Node]:
        """Nodes in topological order, ties in order of creation."""
        order = nx.lexicographical_topological_sort(self.nx, key=lambda n: self.nx.nodes[n]["order"])
        return iter([self[n] for n in order])

    def users(self, name: str) -> list[Node]:
        """The nodes that take the value of `name`."""
        return [self[n] for n in self.nx.successors(name)]

    def rewire(self, old: str, new: str) -> None:
        """Let every user of `old` take `new` instead."""
        for user in self.users(old):
            user.inputs = [new if i == old else i for i in user.inputs]
            self.nx.remove_edge(old, user.name)
            self.nx.add_edge(new, user.name)

    def remove(self, name: str) -> None:
        """Remove a node that nobody uses."""
        users = self.users(name)
        if users:
            raise GraphError(f"cannot remove {name!r}: {[u.name for u in users]} use it")
        self.nx.remove_node(name)

    def reorder(self, name: str, order: float) -> None:
        """Give a node its place among those that the topology leaves free."""
        self.nx.nodes[name]["order"] = order

    def order(self, name: str) -> float:
        """The place of a node among those that the topology leaves free."""
        return self.nx.nodes[name]["order"]

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def verify(self) -> None:
        """Raise `GraphError` unless every rule of the IR holds: acyclic, inputs agree with edges, arity, attributes."""
        if not nx.is_directed_acyclic_graph(self.nx):
            raise GraphError(f"the graph has a cycle: {nx.find_cycle(self.nx)}")
        for name in self.nx:
            node = self[name]
            if set(node.inputs) != set(self.nx.predecessors(name)):
                raise GraphError(f"inputs and edges differ at: {node}")
            if len(node.inputs) != _INPUTS[node.op]:
                raise GraphError(f"{node.op} takes {_INPUTS[node.op]} inputs, at: {node}")
            lacking = [a for a in _NEEDS.get(node.op, ()) if a not in node.attributes]
            if lacking:
                raise GraphError(f"{node.op} needs the attributes {lacking}, at: {node}")
            if not node.shape or any(n < 1 for n in node.shape):
                raise GraphError(f"a shape must be positive, at: {node}")
