"""The ATen operators: one line each. To add one, add a line here and a case in tests/torch/rows.py.

A line gives the operators that replace a call (growc.dialects.torch.operators.formula). An argument that a
line or its function does not name must have its default, or not matter for the computation. Otherwise the
call becomes an opaque node, and every axis that it touches is frozen, which is safe. The same holds for
operators that are missing and that torch does not decompose into these
(growc.dialects.torch.capture.decompose). A third column states a trait of the operator (growc.ir.traits), for
readers of programs that are not yet lowered.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from growc.dialects.torch.operators import (
    axiswise,
    complex_numbers,
    contract,
    creation,
    indexing,
    layout,
    norms,
    pointwise,
    recurrent,
    symbolic_sizes,
    variances,
)
from growc.dialects.torch.operators.formula import LoweringRow, LoweringRule, row_of, stands_for
from growc.ir.traits import Trait

ROWS = """
    # nothing happens, but for the type
    aten._to_copy.default           self                              same
    aten.alias.default              self                              same
    aten.clone.default              self                              same
    aten.contiguous.default         self                              same
    aten.detach.default             self                              same
    aten.lift_fresh_copy.default    self                              same
    aten.real.default               self
    aten.to.device                  self                              same
    aten.to.dtype                   self                              same
    aten.to.dtype_layout            self                              same
    aten.dropout.default            dropout()
    aten.alpha_dropout.default      dropout()
    aten.feature_dropout.default    dropout()
    aten.copy.default               replaced()
    aten.fill.Scalar                filled()
    aten.fill.Tensor                filled()

    # elementwise, one operand
    aten.abs.default                Abs(self.own)
    aten.acos.default               Acos(self)
    aten.asin.default               Asin(self)
    aten.atan.default               Atan(self)
    aten.bitwise_not.default        Not(self) if truth else BitwiseNot(self)
    aten.ceil.default               Ceil(self) if real else self
    aten.celu.default               Celu(self, alpha=alpha)
    aten.clamp.default              clamp()
    aten.clamp.Tensor               clamp()
    aten.clamp_min.default          clamp()
    aten.clamp_max.default          clamp()
    aten.cos.default                Cos(self)
    aten.cosh.default               Cosh(self)
    aten.elu.default                elu()
    aten.erf.default                Erf(self)
    aten.exp.default                Exp(self)
    aten.exp2.default               Pow(2, self)
    aten.expm1.default              Sub(Exp(self), 1)
    aten.fake_quantize_per_tensor_affine.default  fake_quantize()
    aten.floor.default              Floor(self) if real else self
    aten.gelu.default               Gelu(self, approximate=approximate)
    aten.glu.default                glu()
    aten.hardsigmoid.default        HardSigmoid(self, alpha=0.16666666666666666, beta=0.5)
    aten.hardswish.default          HardSwish(self)
    aten.hardtanh.default           Clip(self, min_val, max_val)
    aten.isinf.default              IsInf(self)
    aten.isnan.default              IsNaN(self)
    aten.leaky_relu.default         LeakyRelu(self, alpha=negative_slope)
    aten.log.default                Log(self)
    aten.log1p.default              Log(Add(self, 1))
    aten.log2.default               Div(Log(self), 0.6931471805599453)
    aten.log10.default              Div(Log(self), 2.302585092994046)
    aten.log_sigmoid.default        Neg(Softplus(Neg(self)))
    aten.logical_not.default        Not(self.bool)
    aten.mish.default               Mish(self)
    aten.neg.default                Neg(self)
    aten.prelu.default              prelu()
    aten.reciprocal.default         Reciprocal(self)
    aten.relu.default               Relu(self)
    aten.relu6.default              Clip(self, 0, 6)
    aten.round.default              Round(self) if real else self
    aten.rsqrt.default              Reciprocal(Sqrt(self))
    aten.selu.default               Selu(self)
    aten.sigmoid.default            Sigmoid(self)
    aten.sign.default               Sign(self)
    aten.silu.default               Mul(self, Sigmoid(self))
    aten.sin.default                Sin(self)
    aten.sinh.default               Sinh(self)
    aten.softplus.default           Softplus(self) if beta == 1 else Div(Softplus(Mul(self, beta)), beta)
    aten.sqrt.default               Sqrt(self)
    aten.square.default             Mul(self, self)
    aten.tan.default                Tan(self)
    aten.tanh.default               Tanh(self)

    # complex numbers
    aten._conj.default              analysed()
    aten.complex.default            analysed(x=real, y=imag)
    aten.imag.default               analysed()
    aten.polar.default              analysed(x=abs, y=angle)
    aten.view_as_complex.default    analysed()
    aten.view_as_real.default       analysed()

    # elementwise, several operands
    aten.__and__.Tensor             And(self, other) if truth else BitwiseAnd(self, other)
    aten.__or__.Tensor              Or(self, other) if truth else BitwiseOr(self, other)
    aten.__xor__.Tensor             Xor(self, other) if truth else BitwiseXor(self, other)
    aten.add.Scalar                 Add(self, other) if alpha == 1 else Add(self, Mul(other, alpha))
    aten.add.Tensor                 Or(self, other) if truth else \
                                    Add(self, other) if alpha == 1 else Add(self, Mul(other, alpha))
    aten.addcmul.default            Add(self, Mul(tensor1, tensor2)) if value == 1 else \
                                    Add(self, Mul(Mul(tensor1, tensor2), value))
    aten.bitwise_and.Tensor         And(self, other) if truth else BitwiseAnd(self, other)
    aten.bitwise_or.Tensor          Or(self, other) if truth else BitwiseOr(self, other)
    aten.bitwise_xor.Tensor         Xor(self, other) if truth else BitwiseXor(self, other)
    aten.div.Scalar                 Div(self, other)
    aten.div.Tensor                 Div(self, other)
    aten.div.Tensor_mode            divide()
    aten.eq.Scalar                  Equal(self, other)
    aten.eq.Tensor                  Equal(self, other)
    aten.floor_divide.default       floor_divide()
    aten.ge.Scalar                  GreaterOrEqual(self, other)
    aten.ge.Tensor                  GreaterOrEqual(self, other)
    aten.gt.Scalar                  Greater(self, other)
    aten.gt.Tensor                  Greater(self, other)
    aten.le.Scalar                  LessOrEqual(self, other)
    aten.le.Tensor                  LessOrEqual(self, other)
    aten.lerp.Scalar                Add(self, Mul(Sub(end, self), weight))
    aten.lerp.Tensor                Add(self, Mul(Sub(end, self), weight))
    aten.logical_and.default        And(self.bool, other.bool)
    aten.logical_or.default         Or(self.bool, other.bool)
    aten.logical_xor.default        Xor(self.bool, other.bool)
    aten.lt.Scalar                  Less(self, other)
    aten.lt.Tensor                  Less(self, other)
    aten.masked_fill.Scalar         Where(mask.bool, value, self)
    aten.masked_fill.Tensor         Where(mask.bool, value, self)
    aten.masked_scatter.default     masked_scatter()
    aten.max.other                  Max(self, other)
    aten.maximum.default            Max(self, other)
    aten.min.other                  Min(self, other)
    aten.minimum.default            Min(self, other)
    aten.mul.Scalar                 And(self, other) if truth else Mul(self, other)
    aten.mul.Tensor                 And(self, other) if truth else Mul(self, other)
    aten.ne.Scalar                  Not(Equal(self, other))
    aten.ne.Tensor                  Not(Equal(self, other))
    aten.pow.Scalar                 Pow(self, exponent)
    aten.pow.Tensor_Scalar          Pow(self, exponent)
    aten.pow.Tensor_Tensor          Pow(self, exponent)
    aten.remainder.Scalar  Sub(self, Mul(Floor(Div(self, other)), other)) if real else Mod(self, other)
    aten.remainder.Tensor  Sub(self, Mul(Floor(Div(self, other)), other)) if real else Mod(self, other)
    aten.rsub.Scalar                Sub(other, self)
    aten.sub.Scalar                 Sub(self, other) if alpha == 1 else Sub(self, Mul(other, alpha))
    aten.sub.Tensor                 Sub(self, other) if alpha == 1 else Sub(self, Mul(other, alpha))
    aten.where.default              nonzero_numbers()
    aten.where.Scalar               Where(condition.bool, self, other)
    aten.where.ScalarOther          Where(condition.bool, self, other)
    aten.where.ScalarSelf           Where(condition.bool, self, other)
    aten.where.self                 Where(condition.bool, self, other)

    # contractions
    aten.addmm.default              addmm()
    aten.baddbmm.default            addmm(mat1=batch1, mat2=batch2)
    aten.bmm.default                MatMul(self, mat2)
    aten.conv1d.default             conv()
    aten.conv2d.default             conv()
    aten.conv3d.default             conv()
    aten.conv1d.padding             conv()
    aten.conv2d.padding             conv()
    aten.conv_transpose1d.default   conv_transpose()
    aten.conv_transpose2d.input     conv_transpose()
    aten.conv_transpose3d.input     conv_transpose()
    aten.dot.default                MatMul(self, tensor)
    aten.einsum.default             einsum()
    aten.linear.default             linear()
    aten.matmul.default             MatMul(self, other)
    aten.mm.default                 MatMul(self, mat2)
    aten.mv.default                 MatMul(self, vec)
    aten.bilinear.default           bilinear()
    aten.scaled_dot_product_attention.default  attention()
    aten.gru.input                  recurrent(op=GRU)
    aten.lstm.input                 recurrent(op=LSTM)
    aten.gru_cell.default           gru_cell()
    aten.lstm_cell.default          lstm_cell()
    aten.rnn_relu_cell.default      rnn_cell(op=Relu)
    aten.rnn_tanh_cell.default      rnn_cell(op=Tanh)

    # norms
    aten.batch_norm.default         batch_norm()
    aten.group_norm.default         group_norm()
    aten.instance_norm.default      instance_norm()
    aten.layer_norm.default         layer_norm()
    aten.rms_norm.default           rms_norm()
    aten._weight_norm.default       weight_norm()

    # along axes
    aten.all.default                logical(op=ReduceMin)
    aten.all.dim                    logical(op=ReduceMin)
    aten.amax.default               reduce(op=ReduceMax)
    aten.amin.default               reduce(op=ReduceMin)
    aten.any.default                logical(op=ReduceMax)
    aten.any.dim                    logical(op=ReduceMax)
    aten.argmax.default             arg_extreme(op=ArgMax)
    aten.argmin.default             arg_extreme(op=ArgMin)
    aten.argsort.default            argsort()
    aten.cumsum.default             cumsum()
    aten.linalg_vector_norm.default  vector_norm(p=ord)
    aten.log_softmax.int            LogSoftmax(self, axis=dim)
    aten.logsumexp.default          reduce(op=ReduceLogSumExp)
    aten.max.default                reduce(op=ReduceMax)
    aten.max.dim                    extreme(kind=Max)
    aten.mean.default               reduce(op=ReduceMean)
    aten.mean.dim                   reduce(op=ReduceMean)
    aten.min.default                reduce(op=ReduceMin)
    aten.min.dim                    extreme(kind=Min)
    aten.norm.ScalarOpt_dim         vector_norm()
    aten.prod.dim_int               reduce(op=ReduceProd)
    aten.softmax.int                Softmax(self, axis=dim)
    aten.sort.default               sort()
    aten.std.correction             deviation(root=True)
    aten.std_mean.correction        deviation(root=True, both=True)
    aten.sum.default                reduce(op=ReduceSum)
    aten.sum.dim_IntList            reduce(op=ReduceSum)
    aten.topk.default               topk()
    aten.var.correction             deviation()
    aten.var_mean.correction        deviation(both=True)
    aten.fft_fft.default            transform()
    aten.fft_fft2.default           transform()
    aten.fft_fftn.default           transform()
    aten.fft_ifft.default           transform()
    aten.fft_ifft2.default          transform()
    aten.fft_ifftn.default          transform()
    aten.fft_irfft.default          transform(half=-1)
    aten.fft_irfft2.default         transform(half=-1)
    aten.fft_irfftn.default         transform(half=-1)
    aten.fft_rfft.default           transform(half=1)
    aten.fft_rfft2.default          transform(half=1)
    aten.fft_rfftn.default          transform(half=1)
    aten._fft_c2c.default           transform_plain()
    aten._fft_c2r.default           transform_plain()
    aten._fft_r2c.default           transform_plain()
    aten.adaptive_avg_pool1d.default  adaptive_pool()
    aten.adaptive_avg_pool2d.default  adaptive_pool()
    aten.adaptive_avg_pool3d.default  adaptive_pool()
    aten.adaptive_max_pool1d.default  adaptive_pool(statistic="Max")
    aten.adaptive_max_pool2d.default  adaptive_pool(statistic="Max")
    aten.adaptive_max_pool3d.default  adaptive_pool(statistic="Max")
    aten.avg_pool1d.default         pool(op=AveragePool, space=1)
    aten.avg_pool2d.default         pool(op=AveragePool, space=2)
    aten.avg_pool3d.default         pool(op=AveragePool, space=3)
    aten.max_pool1d.default         pool(op=MaxPool, space=1)
    aten.max_pool2d.default         pool(op=MaxPool, space=2)
    aten.max_pool3d.default         pool(op=MaxPool, space=3)
    aten.max_pool1d_with_indices.default  pool(op=MaxPool, space=1)
    aten.max_pool2d_with_indices.default  pool(op=MaxPool, space=2)
    aten.max_pool3d_with_indices.default  pool(op=MaxPool, space=3)

    # by number
    aten.embedding.default          Gather(weight, indices.own, axis=0)  take
    aten.gather.default             gather()                          take
    aten.index.Tensor               index()                           take
    aten.index_add.default          put_along(reduction="add")        write
    aten.index_copy.default         put_along()                       write
    aten.index_put.default          index_put()                       write
    aten.index_select.default       Gather(self, index.own, axis=dim)  take
    aten.nonzero.default            nonzero()
    aten.one_hot.default            one_hot()
    aten.scatter.src                scatter()                         write
    aten.scatter.value              scatter(src=value)                write
    aten.scatter_add.default        scatter(reduction="add")          write
    aten.select.int                 select()                          take
    aten.select_scatter.default     select_scatter()                  write
    aten.slice_scatter.default      slice_scatter()                   write
    aten.slice.Tensor               slice()                           take
    aten.take_along_dim.default     take_along_dim()                  take

    # layout
    aten._unsafe_view.default       reshape()                         view
    aten.broadcast_to.default       expand()                          repeat
    aten.cat.default                cat()                             join
    aten.chunk.default              equal_parts(of=chunks)  take
    aten.constant_pad_nd.default    pad()
    aten.expand.default             expand()                          repeat
    aten.flatten.using_ints         flatten()                         view
    aten.flip.default               flip()                            turn
    aten.im2col.default             im2col()
    aten.meshgrid.indexing          meshgrid()
    aten.movedim.int                movedim()                         turn
    aten.mT.default                 transpose(dim0=-2, dim1=-1)       turn
    aten.numpy_T.default            turn()                            turn
    aten.pad.default                pad()
    aten.permute.default            permute()                         turn
    aten.channel_shuffle.default    channel_shuffle()
    aten.pixel_shuffle.default      pixel_shuffle()
    aten.pixel_unshuffle.default    pixel_unshuffle()
    aten.repeat.default             repeat()                          repeat
    aten.repeat_interleave.self_int  repeat_interleave()              repeat
    aten.reshape.default            reshape(size=shape)               view
    aten.roll.default               roll()                            turn
    aten.split.Tensor               equal_parts(of=split_size)  take
    aten.split.sizes                split_sizes(split_sizes=split_size)  take
    aten.split_with_sizes.default   split_sizes()                     take
    aten.squeeze.default            squeeze()                         view
    aten.squeeze.dim                squeeze()                         view
    aten.squeeze.dims               squeeze()                         view
    aten.stack.default              stack()                           join
    aten.t.default                  turn()                            turn
    aten.tile.default               repeat(repeats=dims)              repeat
    aten.transpose.int              transpose()                       turn
    aten.tril.default               triangle(upper=0)
    aten.triu.default               triangle(upper=1)
    aten.unbind.int                 unbind()                          take
    aten.unfold.default             unfold()
    aten.unflatten.int              unflatten()                       view
    aten.unsafe_chunk.default       equal_parts(of=chunks)  take
    aten.unsafe_split.Tensor        equal_parts(of=split_size)  take
    aten.unsafe_split_with_sizes.default  split_sizes()               take
    aten.unsqueeze.default          unsqueeze()                       view
    aten.upsample_linear1d.vec      upsample(mode="linear")
    aten.upsample_bilinear2d.vec    upsample(mode="linear")
    aten.upsample_trilinear3d.vec   upsample(mode="linear")
    aten.upsample_bicubic2d.vec     upsample(mode="cubic")
    aten.upsample_nearest1d.vec     upsample(mode="nearest")
    aten.upsample_nearest2d.vec     upsample(mode="nearest")
    aten.upsample_nearest3d.vec     upsample(mode="nearest")
    aten.view.default               reshape()                         view

    # made from sizes
    aten.arange.default             Range(0, end, 1)
    aten.arange.start               Range(start, end, 1)
    aten.arange.start_step          Range(start, end, step)
    aten.empty.memory_format        full(fill_value=0)
    aten.empty_like.default         full_like(fill_value=0)
    aten.eye.default                eye()
    aten.full.default               full()
    aten.full_like.default          full_like()
    aten.linspace.default           linspace()
    aten.ones.default               full(fill_value=1)
    aten.ones_like.default          full_like(fill_value=1)
    aten.scalar_tensor.default      s
    aten.zeros.default              full(fill_value=0)
    aten.zeros_like.default         full_like(fill_value=0)

    # sizes and arithmetic on them
    aten.sym_size.int               sym_size()
    _operator.add                   Add(a, b)
    _operator.mul                   Mul(a, b)
    _operator.neg                   Neg(a)
    _operator.sub                   Sub(a, b)
    _operator.pow                   Pow(a, b)
    _operator.truediv               Div(a, b)
    _operator.floordiv              quotient()
    _operator.mod                   Mod(a, b)
    torch.sym_float                 symbol_cast()
    torch.sym_max                   Max(a, b)
    torch.sym_min                   Min(a, b)
    math.ceil                       symbol_rounded(op=Ceil)
    math.floor                      symbol_rounded(op=Floor)
    math.trunc                      symbol_cast()
"""


def key_of(target: Any) -> str:
    """Return the name of a call's function in the table."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.removeprefix('_').split('.')[0] if module != '_operator' else module}.{target.__name__}"


MODULES: tuple[ModuleType, ...] = (axiswise, complex_numbers, contract, creation, indexing, layout)
MODULES += (norms, pointwise, recurrent, symbolic_sizes, variances)
RULES: dict[str, LoweringRule] = {
    name.rstrip("_"): rule
    for module in MODULES
    for name, rule in vars(module).items()
    if inspect.isfunction(rule) and rule.__module__ == module.__name__ and name[0] != "_"
}

_LINES = (line.strip() for line in ROWS.splitlines() if line.strip() and not line.strip().startswith("#"))
_COLUMNS = [re.split(r"\s{2,}", line, maxsplit=1) for line in _LINES]
_LAW = re.compile(rf"\s{{2,}}({'|'.join(Trait)})$")

TEXTS: Mapping[str, str] = {key: _LAW.sub("", text) for key, text in _COLUMNS}
"""The text of each operator's row, without its trait."""

TRAITS: Mapping[str, Trait] = {key: Trait(law[1]) for key, text in _COLUMNS if (law := _LAW.search(text))}
"""The traits that rows state. Operand 0 is the tensor that the row names first."""

TABLE: Mapping[str, LoweringRow] = {key: row_of(text, RULES) for key, text in TEXTS.items()}

STANDS_FOR: Mapping[str, str] = {
    key.split(".")[1]: op
    for key, text in TEXTS.items()
    if key.startswith("aten.") and (op := stands_for(text)) is not None
}
"""The ONNX operator of a call, where one operator alone replaces it."""
