"""The ATen operators: one line each. To add one, add a line here and a case in tests/torch/test_rows.py.

A line says which operator stands for a call, and which arguments of the call (by the names of its schema) are
its operands; `name=argument` is an attribute. `name()` is a function of the modules in RULES, for calls that
are more. Operands take one type, as torch promotes them.

An argument that a line or function does not name must have its default, or say nothing about what is computed
(SILENT); else, and for operators that are missing and that torch does not make of others that are here
(growc.dialects.torch.capture.decompose), the call becomes an opaque node: every axis that it touches is
frozen, which is safe.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import onnx_ir as ir
import torch

from growc.dialects.torch.operators import axiswise as along
from growc.dialects.torch.operators import (
    complex_numbers,
    contract,
    creation,
    layout,
    norms,
    pointwise,
    recurrent,
    variances,
)
from growc.dialects.torch.operators import indexing as lookup
from growc.dialects.torch.operators import symbolic_sizes as symbols
from growc.dialects.torch.operators.call import Call, UnknownError, promoted

Results = ir.Value | Sequence[ir.Value]
Rule = Callable[..., Results]
Row = Callable[[Call], Results]

SILENT = frozenset(
    {
        "copy",
        "cudnn_enable",
        "cudnn_enabled",
        "device",
        "dtype",  # the result's type says it
        "generator",
        "layout",
        "memory_format",
        "momentum",  # of running means, in training
        "non_blocking",
        "pin_memory",
        "requires_grad",
    }
)
"""Arguments that do not change what is computed, or that show in the result."""

ROWS = """
    # nothing happens, but for the type
    aten._to_copy.default           same()
    aten.alias.default              same()
    aten.clone.default              same()
    aten.contiguous.default         same()
    aten.detach.default             same()
    aten.lift_fresh_copy.default    same()
    aten.real.default               same()
    aten.to.device                  same()
    aten.to.dtype                   same()
    aten.to.dtype_layout            same()
    aten.dropout.default            dropout()
    aten.alpha_dropout.default      dropout()
    aten.feature_dropout.default    dropout()
    aten.copy.default               replaced()
    aten.fill.Scalar                filled()
    aten.fill.Tensor                filled()

    # elementwise, one operand
    aten.abs.default                modulus()
    aten.acos.default               Acos self
    aten.asin.default               Asin self
    aten.atan.default               Atan self
    aten.bitwise_not.default        bitwise_not()
    aten.ceil.default               rounding()
    aten.celu.default               Celu self alpha=alpha
    aten.clamp.default              clamp()
    aten.clamp.Tensor               clamp()
    aten.clamp_min.default          clamp()
    aten.clamp_max.default          clamp()
    aten.cos.default                Cos self
    aten.cosh.default               Cosh self
    aten.elu.default                elu()
    aten.erf.default                Erf self
    aten.exp.default                Exp self
    aten.exp2.default               exp2()
    aten.expm1.default              expm1()
    aten.fake_quantize_per_tensor_affine.default  fake_quantize()
    aten.floor.default              rounding()
    aten.gelu.default               Gelu self approximate=approximate
    aten.glu.default                glu()
    aten.hardsigmoid.default        hardsigmoid()
    aten.hardswish.default          HardSwish self
    aten.hardtanh.default           hardtanh()
    aten.isinf.default              isinf()
    aten.isnan.default              IsNaN self
    aten.leaky_relu.default         LeakyRelu self alpha=negative_slope
    aten.log.default                Log self
    aten.log1p.default              log1p()
    aten.log2.default               log_of_base()
    aten.log10.default              log_of_base()
    aten.log_sigmoid.default        log_sigmoid()
    aten.logical_not.default        logical_not()
    aten.mish.default               Mish self
    aten.neg.default                Neg self
    aten.prelu.default              prelu()
    aten.reciprocal.default         Reciprocal self
    aten.relu.default               Relu self
    aten.relu6.default              relu6()
    aten.round.default              rounding()
    aten.rsqrt.default              rsqrt()
    aten.selu.default               Selu self
    aten.sigmoid.default            Sigmoid self
    aten.sign.default               Sign self
    aten.silu.default               silu()
    aten.sin.default                Sin self
    aten.sinh.default               Sinh self
    aten.softplus.default           softplus()
    aten.sqrt.default               Sqrt self
    aten.square.default             Mul self self
    aten.tan.default                Tan self
    aten.tanh.default               Tanh self

    # complex numbers
    aten._conj.default              part()
    aten.complex.default            of_two()
    aten.imag.default               part()
    aten.polar.default              of_two()
    aten.view_as_complex.default    pairs()
    aten.view_as_real.default       pairs()

    # elementwise, several operands
    aten.__and__.Tensor             bitwise()
    aten.__or__.Tensor              bitwise()
    aten.__xor__.Tensor             bitwise()
    aten.add.Scalar                 add()
    aten.add.Tensor                 add()
    aten.addcmul.default            addcmul()
    aten.bitwise_and.Tensor         bitwise()
    aten.bitwise_or.Tensor          bitwise()
    aten.bitwise_xor.Tensor         bitwise()
    aten.div.Scalar                 Div self other
    aten.div.Tensor                 Div self other
    aten.div.Tensor_mode            divide()
    aten.eq.Scalar                  Equal self other
    aten.eq.Tensor                  Equal self other
    aten.floor_divide.default       floor_divide()
    aten.ge.Scalar                  GreaterOrEqual self other
    aten.ge.Tensor                  GreaterOrEqual self other
    aten.gt.Scalar                  Greater self other
    aten.gt.Tensor                  Greater self other
    aten.le.Scalar                  LessOrEqual self other
    aten.le.Tensor                  LessOrEqual self other
    aten.lerp.Scalar                lerp()
    aten.logical_and.default        logical()
    aten.logical_or.default         logical()
    aten.logical_xor.default        logical()
    aten.lt.Scalar                  Less self other
    aten.lt.Tensor                  Less self other
    aten.masked_fill.Scalar         masked_fill()
    aten.masked_fill.Tensor         masked_fill()
    aten.max.other                  Max self other
    aten.maximum.default            Max self other
    aten.min.other                  Min self other
    aten.minimum.default            Min self other
    aten.mul.Scalar                 mul()
    aten.mul.Tensor                 mul()
    aten.ne.Scalar                  unequal()
    aten.ne.Tensor                  unequal()
    aten.pow.Scalar                 Pow self exponent
    aten.pow.Tensor_Scalar          Pow self exponent
    aten.pow.Tensor_Tensor          Pow self exponent
    aten.remainder.Scalar           remainder()
    aten.remainder.Tensor           remainder()
    aten.rsub.Scalar                rsub()
    aten.sub.Scalar                 sub()
    aten.sub.Tensor                 sub()
    aten.where.default              nonzero_numbers()
    aten.where.Scalar               where()
    aten.where.ScalarOther          where()
    aten.where.ScalarSelf           where()
    aten.where.self                 where()

    # contractions
    aten.addmm.default              addmm()
    aten.baddbmm.default            addmm()
    aten.bmm.default                MatMul self mat2
    aten.conv1d.default             conv()
    aten.conv2d.default             conv()
    aten.conv3d.default             conv()
    aten.conv1d.padding             conv()
    aten.conv2d.padding             conv()
    aten.conv_transpose1d.default   conv_transpose()
    aten.conv_transpose2d.input     conv_transpose()
    aten.dot.default                MatMul self tensor
    aten.einsum.default             einsum()
    aten.linear.default             linear()
    aten.matmul.default             MatMul self other
    aten.mm.default                 MatMul self mat2
    aten.mv.default                 MatMul self vec
    aten.bilinear.default           bilinear()
    aten.scaled_dot_product_attention.default  attention()
    aten.gru.input                  gru()
    aten.lstm.input                 lstm()

    # norms
    aten.batch_norm.default         batch_norm()
    aten.group_norm.default         group_norm()
    aten.instance_norm.default      instance_norm()
    aten.layer_norm.default         layer_norm()
    aten.rms_norm.default           rms_norm()
    aten._weight_norm.default       weight_norm()

    # along axes
    aten.all.default                every()
    aten.all.dim                    every()
    aten.amax.default               reduce()
    aten.amin.default               reduce()
    aten.any.default                some()
    aten.any.dim                    some()
    aten.argmax.default             arg_extreme()
    aten.argmin.default             arg_extreme()
    aten.argsort.default            argsort()
    aten.cumsum.default             cumsum()
    aten.linalg_vector_norm.default  vector_norm()
    aten.log_softmax.int            softmax()
    aten.logsumexp.default          reduce()
    aten.max.default                reduce_all()
    aten.max.dim                    extreme()
    aten.mean.default               reduce_all()
    aten.mean.dim                   reduce()
    aten.min.default                reduce_all()
    aten.min.dim                    extreme()
    aten.norm.ScalarOpt_dim         vector_norm()
    aten.prod.dim_int               reduce()
    aten.softmax.int                softmax()
    aten.sort.default               sort()
    aten.std.correction             deviation()
    aten.std_mean.correction        deviation_and_mean()
    aten.sum.default                reduce_all()
    aten.sum.dim_IntList            reduce()
    aten.topk.default               topk()
    aten.var.correction             deviation()
    aten.var_mean.correction        deviation_and_mean()
    aten.fft_fft.default            transform()
    aten.fft_fft2.default           transform()
    aten.fft_fftn.default           transform()
    aten.fft_ifft.default           transform()
    aten.fft_ifft2.default          transform()
    aten.fft_ifftn.default          transform()
    aten.fft_irfft.default          transform()
    aten.fft_irfft2.default         transform()
    aten.fft_irfftn.default         transform()
    aten.fft_rfft.default           transform()
    aten.fft_rfft2.default          transform()
    aten.fft_rfftn.default          transform()
    aten._fft_c2c.default           transform_whole()
    aten._fft_c2r.default           transform_back()
    aten._fft_r2c.default           transform_real()
    aten.adaptive_avg_pool1d.default  adaptive_pool()
    aten.adaptive_avg_pool2d.default  adaptive_pool()
    aten.avg_pool1d.default         average_pool()
    aten.avg_pool2d.default         average_pool()
    aten.max_pool1d.default         max_pool()
    aten.max_pool2d.default         max_pool()

    # by number
    aten.embedding.default          embedding()
    aten.gather.default             gather()
    aten.index.Tensor               index()
    aten.index_add.default          index_add()
    aten.index_copy.default         index_copy()
    aten.index_put.default          index_put()
    aten.index_select.default       index_select()
    aten.nonzero.default            nonzero()
    aten.one_hot.default            one_hot()
    aten.scatter.src                scatter()
    aten.scatter.value              scatter()
    aten.scatter_add.default        scatter_add()
    aten.select.int                 select()
    aten.select_scatter.default     select_scatter()
    aten.slice_scatter.default      slice_scatter()
    aten.slice.Tensor               slice()
    aten.narrow.default             narrow()
    aten.take_along_dim.default     take_along_dim()

    # layout
    aten._unsafe_view.default       reshape()
    aten.broadcast_to.default       expand()
    aten.cat.default                cat()
    aten.chunk.default              chunk()
    aten.constant_pad_nd.default    pad()
    aten.expand.default             expand()
    aten.expand_as.default          expand_as()
    aten.flatten.using_ints         flatten()
    aten.flip.default               flip()
    aten.im2col.default             im2col()
    aten.meshgrid.indexing          meshgrid()
    aten.movedim.int                movedim()
    aten.mT.default                 swap()
    aten.numpy_T.default            turn()
    aten.pad.default                pad()
    aten.permute.default            permute()
    aten.pixel_shuffle.default      pixel_shuffle()
    aten.pixel_unshuffle.default    pixel_unshuffle()
    aten.repeat.default             repeat()
    aten.repeat_interleave.self_int  repeat_interleave()
    aten.reshape.default            reshape()
    aten.reshape_as.default         reshape_as()
    aten.roll.default               roll()
    aten.split.Tensor               split()
    aten.split.sizes                split_sizes()
    aten.split_with_sizes.default   split_sizes()
    aten.squeeze.default            squeeze()
    aten.squeeze.dim                squeeze()
    aten.squeeze.dims               squeeze()
    aten.stack.default              stack()
    aten.t.default                  turn()
    aten.tile.default               repeat()
    aten.transpose.int              transpose()
    aten.tril.default               triangle()
    aten.triu.default               triangle()
    aten.unbind.int                 unbind()
    aten.unflatten.int              unflatten()
    aten.unsqueeze.default          unsqueeze()
    aten.upsample_bilinear2d.vec    upsample()
    aten.upsample_bicubic2d.vec     upsample()
    aten.upsample_nearest1d.vec     upsample()
    aten.upsample_nearest2d.vec     upsample()
    aten.view.default               reshape()
    aten.view_as.default            reshape_as()

    # made from sizes
    aten.arange.default             arange()
    aten.arange.start               arange()
    aten.arange.start_step          arange()
    aten.empty.memory_format        full()
    aten.empty_like.default         full_like()
    aten.eye.default                eye()
    aten.full.default               full()
    aten.full_like.default          full_like()
    aten.linspace.default           linspace()
    aten.ones.default               full()
    aten.ones_like.default          full_like()
    aten.scalar_tensor.default      scalar_tensor()
    aten.zeros.default              full()
    aten.zeros_like.default         full_like()

    # sizes and arithmetic on them
    aten.sym_size.int               sym_size()
    _operator.add                   Add a b
    _operator.mul                   Mul a b
    _operator.neg                   Neg a
    _operator.sub                   Sub a b
    _operator.pow                   Pow a b
    _operator.truediv               true_quotient()
    _operator.floordiv              quotient()
    _operator.mod                   Mod a b
    torch.sym_float                 symbol_cast()
    torch.sym_max                   Max a b
    torch.sym_min                   Min a b
    math.ceil                       symbol_ceil()
    math.floor                      symbol_floor()
    math.trunc                      symbol_cast()
"""


def key_of(target: Any) -> str:
    """The name of a call's function in the table."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.removeprefix('_').split('.')[0] if module != '_operator' else module}.{target.__name__}"


def _rules(module: ModuleType) -> dict[str, Rule]:
    own = {n: f for n, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__}
    return {n.rstrip("_"): f for n, f in own.items() if inspect.isfunction(f) and n[0] != "_"}


RULES: dict[str, Rule] = {}
for _module in (
    along,
    complex_numbers,
    contract,
    creation,
    layout,
    lookup,
    norms,
    pointwise,
    recurrent,
    symbols,
    variances,
):
    RULES |= _rules(_module)


def _table(text: str) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for line in text.strip().splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, pattern = re.split(r"\s{2,}", line.strip())
        rows[key] = _function(RULES[pattern[:-2]]) if pattern.endswith("()") else _plain(pattern)
    return rows


def _plain(pattern: str) -> Row:
    """An operator with arguments of the call as operands and attributes."""
    op, *words = pattern.split()
    operands = [w for w in words if "=" not in w]
    attributes = dict(w.split("=") for w in words if "=" in w)

    def row(at: Call) -> ir.Value:
        _require(at, {*operands, *attributes.values()})
        if isinstance(at.result, torch.Tensor):
            given = [at.arguments[name] for name in operands]
            dtype = at.dtype if at.dtype is not torch.bool else promoted(given)
            inputs = [at.tensor(a, dtype, name) for a, name in zip(given, operands, strict=True)]
        else:
            inputs = symbols.operands(at, [at.arguments[name] for name in operands])
        made = at.add(op, *inputs, **{k: at.arguments[v] for k, v in attributes.items()})
        return at.follows(made, **{v: k for k, v in attributes.items()})

    return row


def _function(rule: Rule) -> Row:
    """A rule, called with the arguments that it names; `x` is what a schema calls `self` or `input`."""
    parameters = list(inspect.signature(rule).parameters)[1:]

    def row(at: Call) -> Results:
        first = "self" if "self" in at.arguments else "input"
        names = {p: first if p == "x" else p.rstrip("_") for p in parameters}
        _require(at, set(names.values()))
        return rule(at, **{p: at.arguments[n] for p, n in names.items() if n in at.arguments})

    return row


def _require(at: Call, named: set[str]) -> None:
    """Raises UnknownError where an argument that a row does not name says something."""
    defaults = _defaults(at.node.target)
    for name, value in at.arguments.items():
        if name not in named and name not in SILENT and value != defaults.get(name):
            raise UnknownError


def _defaults(target: Any) -> Mapping[str, Any]:
    schema = getattr(target, "_schema", None)
    return {} if schema is None else {a.name: a.default_value for a in schema.arguments}


TABLE = _table(ROWS)

STANDS_FOR: Mapping[str, str] = {
    key.split(".")[1]: pattern.split()[0]
    for key, pattern in (re.split(r"\s{2,}", line.strip()) for line in ROWS.splitlines() if "  aten." in line)
    if not pattern.endswith("()")
}
"""The operator that stands for a call, where a row names one."""
