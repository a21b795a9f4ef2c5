"""MULTIPLY for sixteen tiles, written in vector instructions: one 32-bit word of all tiles is one vector of 16 lanes.

Equal bit for bit to `sim.kernels_matrix` (a test holds them so), at the speed of main memory. The instructions are
LLVM's own: products of 16-bit integers whose neighbours are added, which AVX2 and AVX-512 have as one instruction. (Dot
products of bytes, AVX-512 VNNI, were no faster, for memory is the limit, and an operand integer of 9 bits needs two of
them.) Operand integers lie in the order in which the weights of a word fall out of shifting and masking. Every
floating-point step is a separate instruction without permission to contract.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hw import columns as col
from hw.config import BLOCK
from hw.isa import RowFormat
from hw.jit import FEATURES, njit
from sim.kernels_matrix import POWERS, canonical_accumulators
from sim.kernels_move import LANES

__all__ = ["AVAILABLE", "multiply_words"]

AVAILABLE: bool = {"avx2", "f16c"} <= FEATURES
"""Whether this processor is known to do it well: without F16C, fp16 to fp32 would be a call of a missing function."""

_Q8, _Q4, _F4 = int(RowFormat.Q8), int(RowFormat.Q4), int(RowFormat.F4)
_ROW_BYTES = 10 * 4 * LANES

_I1, _I8, _I16, _I32, _I64, _F32 = *(ir.IntType(bits) for bits in (1, 8, 16, 32, 64)), ir.FloatType()
_WORDS = ir.VectorType(_I32, LANES)
_SHORTS = ir.VectorType(_I16, 2 * LANES)
_WIDE = ir.VectorType(_I32, 2 * LANES)
_FLOATS = ir.VectorType(_F32, LANES)


def _same(vector: ir.VectorType, value: int) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


class _Emitter:
    """Writes vector instructions at the position of a builder."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def splat(self, vector: ir.VectorType, scalar: ir.Value) -> ir.Value:
        first = self.builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined),
                                           ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count))

    def address(self, base: ir.Value, offset: ir.Value, kind: ir.Type) -> ir.Value:
        byte = self.builder.gep(self.builder.bitcast(base, _I8.as_pointer()), [offset])
        return self.builder.bitcast(byte, kind.as_pointer())

    def load(self, base: ir.Value, offset: ir.Value, kind: ir.Type) -> ir.Value:
        return self.builder.load(self.address(base, offset, kind), align=4)

    def halves(self, words: ir.Value, high: bool) -> ir.Value:
        """One fp16 half of each word as fp32."""
        if high:
            words = self.builder.lshr(words, _same(_WORDS, 16))
        short = self.builder.trunc(words, ir.VectorType(_I16, LANES))
        return self.builder.fpext(self.builder.bitcast(short, ir.VectorType(ir.HalfType(), LANES)), _FLOATS)


def _doubled_e2m1(builder: ir.IRBuilder, nibbles: ir.Value) -> ir.Value:
    """The doubled values of E2M1 nibbles, 16 bits each: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives."""
    one, three, five, seven = (_same(_SHORTS, n) for n in (1, 3, 5, 7))
    magnitude = builder.and_(nibbles, seven)
    # From 4 on: two values an octave, 4 and 6, then 8 and 12.
    large = builder.add(_same(_SHORTS, 4), builder.shl(builder.and_(magnitude, one), one))
    large = builder.select(builder.icmp_signed(">", magnitude, five), builder.shl(large, one), large)
    value = builder.select(builder.icmp_signed(">", magnitude, three), large, magnitude)
    return builder.select(builder.icmp_signed(">", nibbles, seven), builder.neg(value), value)


def _weights(builder: ir.IRBuilder, form: int, word: ir.Value) -> list[ir.Value]:
    """The weights in one word of all tiles as pairs of 16-bit integers: (0, 2) and (1, 3) of a q8 word, (0, 4), (1, 5),
    (2, 6) and (3, 7) of a word of nibbles."""
    if form == _Q8:
        shorts, eight = builder.bitcast(word, _SHORTS), _same(_SHORTS, 8)
        return [builder.ashr(builder.shl(shorts, eight), eight), builder.ashr(shorts, eight)]
    mask = _same(_WORDS, 0x000F000F)
    nibbles = [builder.bitcast(builder.and_(builder.lshr(word, _same(_WORDS, 4 * n)), mask), _SHORTS)
               for n in range(4)]
    return [_doubled_e2m1(builder, n) for n in nibbles] if form == _F4 else nibbles


def _add_pairs(builder: ir.IRBuilder, total: ir.Value, weights: ir.Value, operands: ir.Value) -> ir.Value:
    """Products of 16-bit integers, neighbours added to one 32-bit sum (the pattern that becomes `vpmaddwd`)."""
    products = builder.mul(builder.sext(weights, _WIDE), builder.sext(operands, _WIDE))
    nothing = ir.Constant(_WIDE, ir.Undefined)
    even, odd = (builder.shuffle_vector(products, nothing, ir.Constant(_WORDS, list(range(first, 2 * LANES, 2))))
                 for first in (0, 1))
    return builder.add(total, builder.add(even, odd))


def _make_step(form: int) -> Any:
    outputs = 1 if form == _Q8 else 2

    def step(typing: Any, array: Any, row: Any, operand: Any, total: Any, power: Any, init: Any,
             accumulators: Any, acc: Any) -> Any:
        """One array row: `outputs` terms of every tile into the accumulators from `acc` on.

        array uint32 (rows, 10, 16), operand int32 (16,), total and power float32, init bool.
        """
        signature = types.void(array, types.int64, operand, types.float32, types.float32, types.boolean,
                               accumulators, types.int64)

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            array_p, operand_p, acc_p = (context.make_array(sig.args[k])(context, builder, arguments[k]).data
                                         for k in (0, 2, 6))
            row_v, total_v, power_v, init_v, acc_v = (arguments[k] for k in (1, 3, 4, 5, 7))
            if init_v.type != _I1:
                init_v = builder.trunc(init_v, _I1)
            emit = _Emitter(builder)
            base = builder.mul(row_v, ir.Constant(_I64, _ROW_BYTES))

            def row_word(k: int) -> ir.Value:
                return emit.load(array_p, builder.add(base, ir.Constant(_I64, 4 * LANES * k)), _WORDS)

            totals, powers = emit.splat(_FLOATS, total_v), emit.splat(_FLOATS, power_v)
            for half in range(outputs):
                parts = [part for k in range(8 // outputs)
                         for part in _weights(builder, form, row_word(half * 4 + k))]
                total = _same(_WORDS, 0)
                for k, part in enumerate(parts):
                    pair = emit.splat(_WORDS, emit.load(operand_p, ir.Constant(_I64, 4 * k), _I32))
                    total = _add_pairs(builder, total, part, builder.bitcast(pair, _SHORTS))
                sums = builder.sitofp(total, _FLOATS)
                side = row_word(8 + half)
                first = builder.fmul(builder.fmul(sums, emit.halves(side, False)), powers)
                second = builder.fmul(builder.fmul(totals, emit.halves(side, True)), powers)
                term = builder.fadd(first, second)
                at = builder.mul(builder.add(acc_v, ir.Constant(_I64, half)), ir.Constant(_I64, 4 * LANES))
                place_p = emit.address(acc_p, at, _FLOATS)
                summed = builder.fadd(builder.load(place_p, align=4), term)
                builder.store(builder.select(init_v, term, summed), place_p, align=4)
            return context.get_dummy_value()

        return signature, generate

    return intrinsic(step)


_step_q8, _step_q4, _step_f4 = (_make_step(form) for form in (_Q8, _Q4, _F4))


@njit
def _pair(q, form, parts):
    """Operand integers into int16 (32,) in the order of `_weights`."""
    for n in range(BLOCK):
        if form == _Q8:
            place = (n & 28) | ((n & 1) << 1) | ((n & 2) >> 1)
        else:
            place = (n & 24) | ((n & 3) << 1) | ((n & 4) >> 2)
        parts[place] = q[n]


@njit
def multiply_words(f, array, accumulators, operand_q, operand_e, operand_sum, sums):
    """MULTIPLY, as `sim.kernels_matrix.multiply_rows`."""
    form = f[col.M_FORMAT]
    parts = sums.view(np.int16)  # 16 words: just room for an operand block
    for j in range(f[col.M_NJ]):
        init = j == 0 and f[col.M_INIT] != 0
        for h in range(f[col.M_NH]):
            block = f[col.M_BLOCK] + j * f[col.M_BLOCK_J] + h * f[col.M_BLOCK_H]
            _pair(operand_q[block], form, parts)
            power = POWERS[operand_e[block] + 128]
            total = np.float32(operand_sum[block])
            row = f[col.M_ROW] + j * f[col.M_ROW_J] + h * f[col.M_ROW_H]
            acc = f[col.M_ACC] + h * f[col.M_ACC_H]
            step = f[col.M_ROW_R]
            if form == _Q8:
                for r in range(f[col.M_NR]):
                    _step_q8(array, row + r * step, sums, total, power, init, accumulators, acc + r)
            elif form == _Q4:
                for r in range(f[col.M_NR]):
                    _step_q4(array, row + r * step, sums, total, power, init, accumulators, acc + 2 * r)
            else:
                for r in range(f[col.M_NR]):
                    _step_f4(array, row + r * step, sums, total, power, init, accumulators, acc + 2 * r)
    canonical_accumulators(f, accumulators)
