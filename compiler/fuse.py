"""Fusion passes: from the model's operations to kernels that drain, transform and quantize in one go.

Each pass takes a valid graph and leaves a valid graph. `fuse` runs them in their order.
"""

from collections.abc import Callable

from compiler.ir import Graph, Node, Op

__all__ = ["PASSES", "fuse"]


def _single_user(g: Graph, name: str, op: Op) -> Node | None:
    users = g.users(name)
    return users[0] if len(users) == 1 and users[0].op is op else None


def _replace(g: Graph, old: list[str], new: Node) -> None:
    """Put `new` in the place of the last of `old`; `old` are removed from last to first."""
    place = g.order(old[-1])
    g.add(new.name, new.op, new.inputs, new.shape, new.layer, **new.attributes)
    g.rewire(old[-1], new.name)
    g.reorder(new.name, place)
    for name in reversed(old):
        g.remove(name)


def merge_linears(g: Graph) -> None:
    """linear(x, a), linear(x, b), ... -> product(x, [a, b, ...]): one operand, one stream of rows."""
    for source in [n for n in g if n.op is not Op.LINEAR]:
        linears = [u for u in g.users(source.name) if u.op is Op.LINEAR]
        if not linears:
            continue
        linears.sort(key=lambda n: g.order(n.name))
        names = [n.name.rsplit(".", 1)[-1] for n in linears]
        prefix = linears[0].name.rpartition(".")[0]
        name = f"{prefix}.{'_'.join(names)}_product".lstrip(".")
        width = sum(_count(n.shape) for n in linears)
        g.add(name, Op.PRODUCT, [source.name], (width,), linears[0].layer,
              weights=[n.attributes["weight"] for n in linears])
        g.reorder(name, g.order(linears[0].name))
        for linear in linears:
            g.rewire(linear.name, name)
            g.remove(linear.name)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def fuse_rotary(g: Graph) -> None:
    """rope(product), rope(product) -> rotate(product): queries and keys turn in the same passes while draining."""
    for product in [n for n in g if n.op is Op.PRODUCT]:
        ropes = sorted((u for u in g.users(product.name) if u.op is Op.ROPE), key=lambda n: g.order(n.name))
        if not ropes:
            continue
        heads = sum(n.shape[0] for n in ropes)
        name = f"{product.name.rpartition('.')[0]}.rotate"
        g.add(name, Op.ROTATE, [product.name], (heads, ropes[0].shape[1]), product.layer)
        g.reorder(name, g.order(ropes[0].name))
        for rope in ropes:
            g.rewire(rope.name, name)
            g.remove(rope.name)


def fuse_cache(g: Graph) -> None:
    """cache_key(rotate), cache_value(product) -> store(rotate, product)."""
    for key in [n for n in g if n.op is Op.CACHE_KEY]:
        value = next(n for n in g if n.op is Op.CACHE_VALUE and n.layer == key.layer)
        name = f"{key.name.rpartition('.')[0]}.store"
        g.add(name, Op.STORE, [key.inputs[0], value.inputs[0]], key.shape, key.layer)
        g.reorder(name, g.order(key.name))
        for old in (key, value):
            g.rewire(old.name, name)
            g.remove(old.name)


def fuse_attention(g: Graph) -> None:
    """mix(softmax(scores(q, cache)), cache) -> attend(q, cache)."""
    for scores in [n for n in g if n.op is Op.SCORES]:
        softmax = _single_user(g, scores.name, Op.SOFTMAX)
        mix = softmax and _single_user(g, softmax.name, Op.MIX)
        if not softmax or not mix or mix.inputs[1] != scores.inputs[1]:
            continue
        attend = Node(f"{scores.name.rpartition('.')[0]}.attend", Op.ATTEND, list(scores.inputs), mix.shape, mix.layer)
        _replace(g, [scores.name, softmax.name, mix.name], attend)


def fuse_gate(g: Graph) -> None:
    """multiply(activation(product), product) -> gate(product)."""
    for activation in [n for n in g if n.op is Op.ACTIVATION]:
        multiply = _single_user(g, activation.name, Op.MULTIPLY)
        if not multiply or set(multiply.inputs) != {activation.name, activation.inputs[0]}:
            continue
        gate = Node(f"{activation.name.rpartition('.')[0]}.gate_up", Op.GATE, [activation.inputs[0]], multiply.shape,
                    multiply.layer, {"function": activation.attributes["function"]})
        _replace(g, [activation.name, multiply.name], gate)


def fuse_residual(g: Graph) -> None:
    """rmsnorm(add(product, h), gain) -> residual(product, h, gain), and rmsnorm(embed) -> lookup.

    The kernel stores the new residual, quantizes it times the gain, and sums its squares on the side: 1/rms is a
    scalar that the next product's drains apply.
    """
    for norm in [n for n in g if n.op is Op.RMSNORM]:
        source = g[norm.inputs[0]]
        if source.op not in (Op.ADD, Op.EMBED):
            continue
        attributes = {**source.attributes, "gain": norm.attributes["gain"]}
        op = Op.RESIDUAL if source.op is Op.ADD else Op.LOOKUP
        name = source.name.replace("_add", "_residual") if op is Op.RESIDUAL else "lookup"
        g.rewire(norm.name, source.name)
        g.remove(norm.name)
        _replace(g, [source.name], Node(name, op, source.inputs, source.shape, source.layer, attributes))


def fuse_output(g: Graph) -> None:
    """argmax(product) -> output(x): logits and their largest are found while draining."""
    for argmax in [n for n in g if n.op is Op.ARGMAX]:
        product = g[argmax.inputs[0]]
        if product.op is Op.PRODUCT and len(product.attributes["weights"]) == 1:
            output = Node("logits", Op.OUTPUT, product.inputs, product.shape, -1,
                          {"weight": product.attributes["weights"][0]})
            _replace(g, [product.name, argmax.name], output)


PASSES: tuple[Callable[[Graph], None], ...] = (
    merge_linears, fuse_rotary, fuse_cache, fuse_attention, fuse_gate, fuse_residual, fuse_output,
)


def fuse(g: Graph, after: Callable[[str, Graph], None] = lambda name, g: None) -> Graph:
    """Run all passes; `after` is called with each pass's name and result, which is verified first."""
    for one in PASSES:
        one(g)
        g.verify()
        after(one.__name__, g)
    return g
