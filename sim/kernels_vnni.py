"""MULTIPLY for sixteen tiles on a processor with AVX-512 VNNI: one 32-bit word of all tiles is one vector register.

The functions are equal bit for bit to those of `sim.kernels_matrix` (a test holds them so) and run at the speed of
main memory. VNNI multiplies unsigned by signed bytes and adds four neighbouring products to a 32-bit integer. So

* an operand integer q, of 9 bits, is split into ``2*hi + lo`` with hi a signed byte and lo 0 or 1,
* int8 weights get 128 added (their top bit flipped) and doubled E2M1 ones 12, which a start value of ``-128 * sum(q)``
  or ``-12 * sum(q)`` takes away again,
* operand bytes lie in the order in which the nibbles of a word fall out of masking and shifting.

Every floating-point step is a separate LLVM instruction without permission to contract.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hw import columns as col
from hw.config import BLOCK
from hw.isa import RowFormat
from hw.jit import FEATURES, njit
from sim.kernels_matrix import POWERS, canonical_accumulators

__all__ = ["AVAILABLE", "TILES", "multiply_rows_vnni"]

TILES = 16
"""Tiles of the devices that these kernels serve."""

_settings: Any = numba.config

AVAILABLE: bool = _settings.CPU_NAME is None and all(
    FEATURES.get(name, False) for name in ("avx512f", "avx512bw", "avx512vnni", "f16c"))
"""Whether this processor has what they need."""

_Q8, _Q4, _F4 = int(RowFormat.Q8), int(RowFormat.Q4), int(RowFormat.F4)
_ROW_BYTES = 10 * 4 * TILES

_I8, _I16, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS = ir.VectorType(_I32, TILES)
_BYTES = ir.VectorType(_I8, 4 * TILES)
_FLOATS = ir.VectorType(_F32, TILES)
_DOUBLED_E2M1_PLUS_12 = [12 + v for v in (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)]


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

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        signature = ir.FunctionType(result, [a.type for a in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, arguments)

    def dot(self, total: ir.Value, weights: ir.Value, operands: ir.Value) -> ir.Value:
        """Adds unsigned weight bytes times signed operand bytes."""
        return self.call("llvm.x86.avx512.vpdpbusd.512", _WORDS, total, weights, operands)

    def halves(self, words: ir.Value, high: bool) -> ir.Value:
        """One fp16 half of each word as fp32."""
        if high:
            words = self.builder.lshr(words, _same(_WORDS, 16))
        short = self.builder.trunc(words, ir.VectorType(_I16, TILES))
        return self.builder.fpext(self.builder.bitcast(short, ir.VectorType(ir.HalfType(), TILES)), _FLOATS)


def _weights(emit: _Emitter, form: int, words: ir.Value) -> list[ir.Value]:
    """Unsigned bytes of one word of weights: itself, or its even and odd nibbles."""
    builder = emit.builder
    if form == _Q8:
        return [builder.xor(words, _same(_WORDS, 0x80808080))]
    mask = _same(_WORDS, 0x0F0F0F0F)
    parts = [builder.and_(words, mask), builder.and_(builder.lshr(words, _same(_WORDS, 4)), mask)]
    if form == _F4:
        table = ir.Constant(_BYTES, _DOUBLED_E2M1_PLUS_12 * 4)
        parts = [builder.bitcast(emit.call("llvm.x86.avx512.pshuf.b.512", _BYTES, table,
                                           builder.bitcast(part, _BYTES)), _WORDS) for part in parts]
    return parts


def _make_step(form: int):
    outputs = 1 if form == _Q8 else 2

    @intrinsic
    def step(typing, array, row, high, low, start, total, power, init, accumulators, acc):
        """One array row: `outputs` terms of every tile into the accumulators from `acc` on.

        array uint32 (rows, 10, 16), high and low int8 (32,), start int32, total and power float32, init bool.
        """
        signature = types.void(array, types.int64, high, low, types.int32, types.float32, types.float32,
                               types.boolean, accumulators, types.int64)

        def generate(context, builder, sig, arguments):
            data = [context.make_array(sig.args[k])(context, builder, arguments[k]).data for k in (0, 2, 3, 8)]
            array_p, high_p, low_p, acc_p = data
            row_v, start_v, total_v, power_v, acc_v = (arguments[k] for k in (1, 4, 5, 6, 9))
            init_v = builder.trunc(arguments[7], ir.IntType(1)) if arguments[7].type != ir.IntType(1) \
                else arguments[7]
            emit = _Emitter(builder)
            base = builder.mul(row_v, ir.Constant(_I64, _ROW_BYTES))

            def row_word(k: int) -> ir.Value:
                return emit.load(array_p, builder.add(base, ir.Constant(_I64, 4 * TILES * k)), _WORDS)

            def operand(pointer: ir.Value, k: int) -> ir.Value:
                return emit.splat(_WORDS, emit.load(pointer, ir.Constant(_I64, 4 * k), _I32))

            totals, powers = emit.splat(_FLOATS, total_v), emit.splat(_FLOATS, power_v)
            for half in range(outputs):
                coarse, fine = _same(_WORDS, 0), emit.splat(_WORDS, start_v)
                place = 0
                for k in range(8 // outputs):
                    for part in _weights(emit, form, row_word(half * 4 + k)):
                        coarse = emit.dot(coarse, part, operand(high_p, place))
                        fine = emit.dot(fine, part, operand(low_p, place))
                        place += 1
                sums = builder.sitofp(builder.add(builder.shl(coarse, _same(_WORDS, 1)), fine), _FLOATS)
                side = row_word(8 + half)
                first = builder.fmul(builder.fmul(sums, emit.halves(side, False)), powers)
                second = builder.fmul(builder.fmul(totals, emit.halves(side, True)), powers)
                term = builder.fadd(first, second)
                at = builder.mul(builder.add(acc_v, ir.Constant(_I64, half)), ir.Constant(_I64, 4 * TILES))
                place_p = emit.address(acc_p, at, _FLOATS)
                summed = builder.fadd(builder.load(place_p, align=4), term)
                builder.store(builder.select(init_v, term, summed), place_p, align=4)
            return context.get_dummy_value()

        return signature, generate

    return step


_step_q8, _step_q4, _step_f4 = _make_step(_Q8), _make_step(_Q4), _make_step(_F4)


@njit
def _split(q, form, high, low):
    """Bytes of an operand block in the order of its row format's weights; returns the sum of the integers."""
    total = 0
    for n in range(BLOCK):
        value = q[n]
        total += value
        # Nibbles of a word: elements 0, 2, 4, 6 by the mask, then 1, 3, 5, 7 by shift and mask.
        place = n if form == _Q8 else (n & 24) | ((n & 1) << 2) | ((n & 7) >> 1)
        high[place] = np.int8(value >> 1)
        low[place] = np.int8(value & 1)
    return total


@njit
def multiply_rows_vnni(f, array, accumulators, operand_q, operand_e, operand_sum, sums):
    """MULTIPLY, as `sim.kernels_matrix.multiply_rows`."""
    form = f[col.M_FORMAT]
    parts = sums.view(np.int8)  # 16 words: room for two bytes of each operand integer
    high, low = parts[:BLOCK], parts[BLOCK:]
    for j in range(f[col.M_NJ]):
        init = j == 0 and f[col.M_INIT] != 0
        for h in range(f[col.M_NH]):
            block = f[col.M_BLOCK] + j * f[col.M_BLOCK_J] + h * f[col.M_BLOCK_H]
            plain = _split(operand_q[block], form, high, low)
            power = POWERS[operand_e[block] + 128]
            total = np.float32(operand_sum[block])
            row = f[col.M_ROW] + j * f[col.M_ROW_J] + h * f[col.M_ROW_H]
            acc = f[col.M_ACC] + h * f[col.M_ACC_H]
            step = f[col.M_ROW_R]
            if form == _Q8:
                start = np.int32(-128 * plain)
                for r in range(f[col.M_NR]):
                    _step_q8(array, row + r * step, high, low, start, total, power, init, accumulators, acc + r)
            elif form == _Q4:
                for r in range(f[col.M_NR]):
                    _step_q4(array, row + r * step, high, low, np.int32(0), total, power, init, accumulators,
                             acc + 2 * r)
            else:
                start = np.int32(-12 * plain)
                for r in range(f[col.M_NR]):
                    _step_f4(array, row + r * step, high, low, start, total, power, init, accumulators,
                             acc + 2 * r)
    canonical_accumulators(f, accumulators)
