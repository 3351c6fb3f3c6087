"""The ONNX operators: one line each. To add one, add a line here and a case in tests/operators/.

The notation is explained in growc.ir.notation, the treatments in TREATMENTS there. Operators without a line
are opaque: they freeze every axis that they touch, which is safe.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.operators import attention, axiswise, contract, indexing, layout, pointwise
from growc.ir.operator_rows import LineRule, table
from growc.ir.traits import Trait

RULES: dict[str, LineRule] = {
    name.rstrip("_"): rule  # as in `not_`
    for module in (axiswise, attention, contract, layout, indexing, pointwise)
    for name, rule in vars(module).items()
    if getattr(rule, "__module__", "") == module.__name__ and name[0] != "_"
}
"""Lines that depend on values or attributes: the public functions of these modules. They see sizes and small
known integers only; an axis about which they cannot tell is opaque (`_`).
"""

OPERATORS = table(
    """
    # elementwise, one operand
    Abs                      ... -> ...                            pointwise zero homogeneous
    Neg                      ... -> ...                            layout
    Identity                 ... -> ...                            layout       same
    Cast                     cast()                                layout       same
    CastLike                 cast_like()                           layout       same
    Dropout                  dropout()                             layout       same
    QuantizeLinear           quantise()                            pointwise    quantise
    DequantizeLinear         quantise()                            pointwise    dequantise
    Relu                     ... -> ...                            pointwise zero homogeneous
    LeakyRelu                ... -> ...                            pointwise zero homogeneous
    Sign                     ... -> ...                            pointwise zero  jump
    Sqrt                     ... -> ...                            pointwise zero  pole
    Sin                      ... -> ...                            pointwise zero
    Tan                      ... -> ...                            pointwise zero
    Asin                     ... -> ...                            pointwise zero  pole
    Atan                     ... -> ...                            pointwise zero
    Asinh                    ... -> ...                            pointwise zero
    Atanh                    ... -> ...                            pointwise zero  pole
    Sinh                     ... -> ...                            pointwise zero
    Tanh                     ... -> ...                            pointwise zero
    Erf                      ... -> ...                            pointwise zero
    Gelu                     ... -> ...                            pointwise zero
    Elu                      ... -> ...                            pointwise zero
    Celu                     ... -> ...                            pointwise zero
    Selu                     ... -> ...                            pointwise zero
    Softsign                 ... -> ...                            pointwise zero
    HardSwish                ... -> ...                            pointwise zero
    Mish                     ... -> ...                            pointwise zero
    Swish                    ... -> ...                            pointwise zero
    ThresholdedRelu          ... -> ...                            pointwise zero
    Floor                    ... -> ...                            pointwise zero  whole jump
    Ceil                     ... -> ...                            pointwise zero  whole jump
    Round                    ... -> ...                            pointwise zero  whole
    Cos                      ... -> ...                            pointwise
    Acos                     ... -> ...                            pointwise    pole
    Acosh                    ... -> ...                            pointwise    pole
    Cosh                     ... -> ...                            pointwise
    Exp                      ... -> ...                            pointwise
    Log                      ... -> ...                            pointwise    pole
    Reciprocal               ... -> ...                            pointwise    pole
    Sigmoid                  ... -> ...                            pointwise
    HardSigmoid              ... -> ...                            pointwise
    Softplus                 ... -> ...                            pointwise
    Not                      ... -> ...                            pointwise
    IsNaN                    ... -> ...                            pointwise
    IsInf                    ... -> ...                            pointwise
    Clip                     clip()                                pointwise
    com.microsoft::Gelu      ... -> ...                            pointwise zero
    com.microsoft::FastGelu  ... -> ...                            pointwise zero
    com.microsoft::QuickGelu  ... -> ...                           pointwise zero

    # elementwise, several operands
    Add                      ..., ... -> ...                       add          sum
    Sub                      ..., ... -> ...                       add
    Sum                      ...* -> ...                           add          sum
    Mul                      ..., ... -> ...                       multiply
    Div                      ..., ... -> ...                       divide       pole
    Pow                      power()                               pointwise    pole
    PRelu                    ..., ... -> ...                       pointwise zero
    Mod                      ..., ... -> ...                       remainder    jump pole
    Max                      extreme()                             pointwise
    Min                      extreme()                             pointwise
    Mean                     ...* -> ...                           add
    And                      ..., ... -> ...                       pointwise
    Or                       ..., ... -> ...                       pointwise
    Xor                      ..., ... -> ...                       pointwise
    Equal                    ..., ... -> ...                       pointwise
    Less                     ..., ... -> ...                       pointwise
    LessOrEqual              ..., ... -> ...                       pointwise
    Greater                  ..., ... -> ...                       pointwise
    GreaterOrEqual           ..., ... -> ...                       pointwise
    Where                    ..., ..., ... -> ...                  select

    # contractions and tables
    MatMul     ... m k, ... k n -> ... m n | k, ... k n -> ... n | ... m k, k -> ... m | k, k ->   contract
    Gemm                     gemm()                                contract
    Einsum                   einsum()                              contract
    Conv                     conv()                                contract
    ConvTranspose            conv()                                contract
    RotaryEmbedding          rotary_embedding()                    layout
    com.microsoft::FusedMatMul      fused_matmul()                 contract
    com.microsoft::TransposeMatMul  fused_matmul()                 contract
    com.microsoft::RotaryEmbedding  rotary_embedding()             layout
    LSTM                     recurrent()                           recurrent
    GRU                      recurrent()                           recurrent
    RNN                      recurrent()                           recurrent
    Gather                   gather()                              lookup       take
    GatherND                 gather_nd()                           lookup       take
    OneHot                   one_hot()                             pointwise
    Compress                 compress()                            layout       take

    # along axes
    ReduceMean               reduce()                              mean
    ReduceSum                reduce()                              sum
    ReduceMax                reduce()                              extreme
    ReduceMin                reduce()                              extreme
    ReduceL2                 reduce()                              fold
    ReduceL1                 reduce()                              fold
    ReduceSumSquare          reduce()                              fold squares
    ReduceLogSumExp          fold_whole()                          pointwise
    ReduceLogSum             fold_whole()                          pointwise    pole
    ReduceProd               fold_whole()                          pointwise zero
    Softmax                  along()                               pointwise
    LogSoftmax               along()                               pointwise
    Hardmax                  along()                               pointwise
    CumSum                   along()                               layout
    DFT                      dft()                                 layout
    ArgMax                   along()                               pointwise    rank
    ArgMin                   along()                               pointwise    rank
    TopK                     along()                               pointwise    rank
    LpNormalization          lp_normalization()                    l2_norm
    LayerNormalization       normalization()                       layer_norm
    RMSNormalization         normalization()                       rms_norm
    SimplifiedLayerNormalization  normalization()                  rms_norm
    InstanceNormalization    instance_norm()                       layer_norm
    GroupNormalization       group_norm()                          layer_norm
    BatchNormalization       batch_norm()                          per_channel
    LRN                      b _ ... -> b _ ...                    pointwise zero
    GlobalAveragePool        global_pool()                         mean
    GlobalMaxPool            global_pool()                         extreme
    AveragePool              pool()                                layout
    MaxPool                  pool()                                pointwise zero homogeneous

    # layout
    Reshape                  reshape()                             layout       view
    Flatten                  reshape()                             layout       view
    Squeeze                  reshape()                             layout       view
    Unsqueeze                reshape()                             layout       view
    Transpose                transpose()                           layout       turn
    Expand                   expand()                              layout       repeat
    Tile                     tile()                                layout       repeat
    Concat                   concat()                              layout       join
    Split                    split()                               layout       take
    Slice                    slice()                               layout       take
    Pad                      pad()                                 layout       write
    Resize                   resize()                              layout
    Trilu                    trilu()                               layout
    DepthToSpace             depth_to_space()                      layout       turn
    SpaceToDepth             depth_to_space()                      layout       turn
    GatherElements           gather_elements()                     layout       take
    ScatterElements          gather_elements()                     layout       write
    ScatterND                scatter_nd()                          layout       write
    ConstantOfShape          constant_of_shape()                   layout
    Shape                    depends_on_shape_only()               layout       sizes
    Size                     depends_on_shape_only()               layout       sizes

    # parts of fused operators: known to the analysis alone
    growc::Attention         attention()                           attention
    growc::RotaryEmbedding   rotary_embedding()                    layout
    growc::SplitHeads        b s (h d) -> b h s d | b h s d -> b h s d   layout  turn
    growc::MergeHeads        b h s e -> b s (h e)                  layout       turn
    growc::SplitPacked       split_packed()                        layout       take
    growc::SplitBias  ((h d) + (i e) + (j f)), b h s d, c i t e, c j t f -> h 1 d, i 1 e, j 1 f  layout  take
    growc::Unfold            unfold()                              layout       turn
    growc::Repeat            repeat()                              layout       repeat
    growc::Unpack            b s h _ d -> b h s d                  layout       take
    growc::Unstack           _ b h s d -> b h s d                  layout       take
    growc::Stack             b h s d, b h s d -> _ b h s d         layout       join
    growc::HeadColumn        h -> h 1 1                            layout
    growc::Positions         b _ -> _                              layout
    growc::MaskIndex         b _, b _? -> b                        pointwise
    growc::Clip              clip()                                pointwise
    growc::Shift             shift()                               pointwise
    growc::Largest           reduce()                              extreme
    growc::Least             reduce()                              extreme
    growc::Rounded           rounded()                             pointwise
    growc::Step              ..., ... -> ...                       pointwise
    growc::Zero              ..., ... -> ...                       pointwise

    # complex numbers, which ONNX has not: known to the analysis alone
    aten::fft                fourier()                             layout
    aten::conj               ... -> ...                            layout
    aten::complex            ..., ... -> ...                       add
    aten::imag               ... -> ...                            layout
    aten::polar              ..., ... -> ...                       pointwise
    aten::to                 ... -> ...                            layout
    aten::view_as_complex    ... _ -> ...                          layout
    aten::view_as_real       ... -> ... _                          layout
    """,
    RULES,
)


def has(node: ir.Node | None, *traits: Trait) -> bool:
    """Whether an operator of a model's node has one of these traits."""
    row = None if node is None else OPERATORS.get(op_name(node))
    return row is not None and not row.traits.isdisjoint(traits)


def backward(value: ir.Value, through: Callable[[ir.Node], bool]) -> ir.Value:
    """Return the value behind nodes that pass a test, along the first operand of each."""
    while (node := value.producer()) is not None and node.inputs and through(node):
        if node.inputs[0] is None:
            break
        value = node.inputs[0]
    return value


def treatment_of(node: ir.Node) -> str:
    """Return what the operator of a model's node does to maps."""
    row = OPERATORS.get(op_name(node))
    return "opaque" if row is None else row.treatment
