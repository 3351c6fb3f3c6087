"""Transformers of one or two layers as onnxruntime writes them: every block one fused operator.

hidden 8, 2 heads of 4 (4 query heads on 2 of keys and values where they are grouped), ffn 12, vocab 16. Every
eps is large, so that a wrong one shows.
"""

from __future__ import annotations

BERT = """
bert (int32[N, S] ids, int32[N, S] segments) => (float[N, S, 16] logits)
<float[16, 8] words, float[9, 8] places, float[2, 8] kinds, float[8] g0, float[8] b0,
 float[8, 24] qkv, float[24] qkv_bias, float[8, 8] out, float[8] out_bias, float[8] g1, float[8] b1,
 float[8, 12] up, float[12] up_bias, float[12, 8] down, float[8] down_bias, float[8] g2, float[8] b2,
 float[8, 16] head>
{
    x, lengths = com.microsoft.EmbedLayerNormalization <epsilon = 0.01>
        (ids, segments, words, places, kinds, g0, b0)
    a = com.microsoft.Attention <num_heads = 2> (x, qkv, qkv_bias)
    o = MatMul(a, out)
    y = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (o, x, g1, b1, out_bias)
    u = MatMul(y, up)
    h = com.microsoft.BiasGelu(u, up_bias)
    d = MatMul(h, down)
    z = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (d, y, g2, b2, down_bias)
    logits = MatMul(z, head)
}
"""

GPT = """
gpt (int64[N, S] ids, float[2, N, 2, P, 4] past)
    => (float[N, S, 16] logits, float[2, N, 2, T, 4] present)
<float[16, 8] words, float[8] g0, float[8] b0, float[8, 24] qkv, float[24] qkv_bias, float[8, 8] out,
 float[8] out_bias, float[8] g1, float[8] b1, float[8, 12] up, float[12] up_bias, float[12, 8] down,
 float[8] down_bias, float[8] g2, float[8] b2, float[8, 16] head>
{
    x = Gather(words, ids)
    n = LayerNormalization <epsilon = 0.01> (x, g0, b0)
    a, present = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (n, qkv, qkv_bias, , past)
    o = MatMul(a, out)
    y, , , stream = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (x, o, g1, b1, out_bias)
    u = MatMul(y, up)
    h = com.microsoft.FastGelu(u, up_bias)
    d = MatMul(h, down)
    z = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (stream, d, g2, b2, down_bias)
    logits = com.microsoft.FusedMatMul <alpha = 0.5> (z, head)
}
"""

LLAMA = """
llama (int64[N, S] ids, int32[N] lengths, int32 longest, float[N, 2, P, 16] past_k, float[N, 2, P, 16] past_v)
    => (float[N, S, 16] logits, float[N, 2, T, 16] present_k, float[N, 2, T, 16] present_v)
<float[16, 8] words, float[8] g0, float[8, 64] wq, float[8, 32] wk, float[8, 32] wv, float[64, 8] wo,
 float[8] g1, float[8, 12] gate, float[8, 12] up, float[12, 8] down, float[8] g2, float[8, 16] head,
 float[64, 8] cosines, float[64, 8] sines>
{
    x = Gather(words, ids)
    n = SimplifiedLayerNormalization <epsilon = 0.01> (x, g0)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    a, present_k, present_v = com.microsoft.GroupQueryAttention
        <num_heads = 4, kv_num_heads = 2, do_rotary = 1>
        (q, k, v, past_k, past_v, lengths, longest, cosines, sines)
    o = MatMul(a, wo)
    y, , , stream = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.01> (x, o, g1)
    t = MatMul(y, gate)
    s = com.microsoft.QuickGelu <alpha = 1.0> (t)
    u = MatMul(y, up)
    h = Mul(s, u)
    d = MatMul(h, down)
    z = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.01> (stream, d, g2)
    logits = MatMul(z, head)
}
"""

ROPE = """
rope (int64[N, S] ids, int64[N, S] places, float[N, 2, P, 16] past_k, float[N, 2, P, 16] past_v)
    => (float[N, S, 16] logits, float[N, 2, T, 16] present_k, float[N, 2, T, 16] present_v)
<float[16, 8] words, float[8] g0, float[8, 32] wq, float[8, 32] wk, float[8, 32] wv, float[32, 8] wo,
 float[8] g1, float[8, 12] up, float[12, 8] down, float[8] g2, float[8, 16] head,
 float[64, 8] cosines, float[64, 8] sines>
{
    x = Gather(words, ids)
    n = SimplifiedLayerNormalization <epsilon = 0.01> (x, g0)
    q0 = MatMul(n, wq)
    k0 = MatMul(n, wk)
    v = MatMul(n, wv)
    q = com.microsoft.RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 16> (q0, places, cosines, sines)
    k = com.microsoft.RotaryEmbedding(k0, places, cosines, sines)
    a, present_k, present_v = com.microsoft.MultiHeadAttention <num_heads = 2>
        (q, k, v, , , , past_k, past_v)
    o = MatMul(a, wo)
    y, , , stream = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.01> (x, o, g1)
    u = MatMul(y, up)
    h = com.microsoft.Gelu(u)
    d = MatMul(h, down)
    z = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.01> (stream, d, g2)
    logits = MatMul(z, head)
}
"""

WHISPER = """
whisper (float[N, F, 6] sound, int64[N, S] ids, float[1, 1, S, S] far) => (float[N, S, 16] logits)
<float[6, 8] stem, float[8] stem_bias, float[1, 2, 1, 1] slopes, float[16, 8] words, float[8] g0, float[8] b0,
 float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[24] self_bias, float[8, 8] wo, float[8] wo_bias,
 float[8] g1, float[8] b1, float[8, 8] cq, float[8, 8] ck, float[8, 8] cv, float[24] cross_bias,
 float[8, 8] co, float[8] co_bias, float[8] g2, float[8] b2, float[8, 12] up, float[12] up_bias,
 float[12, 8] down, float[8] g3, float[8] b3, float[8, 16] head>
{
    e0 = MatMul(sound, stem)
    e = com.microsoft.BiasGelu(e0, stem_bias)
    x = Gather(words, ids)
    n = LayerNormalization <epsilon = 0.01> (x, g0, b0)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    bias = Mul(far, slopes)
    a = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, self_bias, , bias)
    o = MatMul(a, wo)
    y, , , stream = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (o, x, g1, b1, wo_bias)
    qc = MatMul(y, cq)
    kc = MatMul(e, ck)
    vc = MatMul(e, cv)
    c = com.microsoft.MultiHeadAttention <num_heads = 2> (qc, kc, vc, cross_bias)
    oc = MatMul(c, co)
    z, , , after = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (stream, oc, g2, b2, co_bias)
    u = MatMul(z, up)
    h = com.microsoft.BiasGelu(u, up_bias)
    d = MatMul(h, down)
    last = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (after, d, g3, b3)
    logits = MatMul(last, head)
}
"""

OPSET_23 = """
opset23 (int64[N, S] ids, float[N, 2, P, 4] past_k, float[N, 2, P, 4] past_v)
    => (float[N, S, 16] logits, float[N, 2, T, 4] present_k, float[N, 2, T, 4] present_v)
<float[16, 8] words, float[8] g0, float[8, 16] wq, float[8, 8] wk, float[8, 8] wv, float[16, 8] wo,
 float[8] g1, float[8, 12] up, float[12, 8] down, float[8] g2, float[8, 16] head>
{
    x = Gather(words, ids)
    n = RMSNormalization <epsilon = 0.01> (x, g0)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    a, present_k, present_v = Attention <q_num_heads = 4, kv_num_heads = 2, softcap = 2.0>
        (q, k, v, , past_k, past_v)
    o = MatMul(a, wo)
    y = Add(x, o)
    m = RMSNormalization <epsilon = 0.01> (y, g1)
    u = MatMul(m, up)
    h = Gelu(u)
    d = MatMul(h, down)
    z = Add(y, d)
    w = RMSNormalization <epsilon = 0.01> (z, g2)
    logits = MatMul(w, head)
}
"""

GRAPHS = {"bert": BERT, "gpt": GPT, "llama": LLAMA, "rope": ROPE, "whisper": WHISPER, "opset23": OPSET_23}
OPSETS = {"opset23": 23}
