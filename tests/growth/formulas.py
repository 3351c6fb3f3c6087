"""Every weight of a widened GPT-2 as docs/language.md states it, from the source's weights alone.

Written from the contract's tables, in numpy, without growc: only what is drawn at random (the sources of
`uniform copy`, new entries) is left open, the first as an argument, the second as NaN in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
COPIES = ("neighbor copy", "tail copy", "last copy", "uniform copy", "cyclic copy")
FILLS = (*COPIES, "average fill", "zero fill", "random fill")
LAYERS = 2


@dataclass(frozen=True)
class Growth:
    """One axis from d to D elements: `g` is the source of every one, -1 where it is no copy.

    A unit has `unit` elements (the head dimension on heads); the mean of all units is taken element by
    element.
    """

    fill: str
    before: int
    g: Array
    unit: int = 1

    @property
    def after(self) -> int:
        return len(self.g)

    @property
    def counts(self) -> Array:
        """C, for every unit of the result."""
        counts = np.bincount(self.g[self.g >= 0], minlength=self.before)
        return np.where(self.g >= 0, counts[self.g], 1)

    @property
    def whole(self) -> int:
        """k = floor(D/d)."""
        return self.after // self.before

    def in_units_of(self, size: int) -> Growth:
        """The same on every element of units of `size` elements."""
        g = np.where(self.g[:, None] >= 0, self.g[:, None] * size + np.arange(size), -1)
        return Growth(self.fill, self.before * size, g.reshape(-1), size)


def growth(
    fill: str, d: int, size: int, drawn: Sequence[int] | Array = (), *, addressed: bool = False
) -> Growth:
    """The table of fills. `drawn`: the sources of the new units of `uniform copy`."""
    j = np.arange(size)
    g = {
        "neighbor copy": j * d // size,
        "tail copy": np.where(j < d, j, d - 1 - (size - 1 - j) % d),
        "last copy": np.minimum(j, d - 1),
        "uniform copy": np.concatenate([np.arange(d), drawn]) if len(drawn) else j,
        "cyclic copy": j % d,
        "average fill": np.where(j < size // d * d, j % d, -1),
        "zero fill": np.where(j < d, j, -1),
        "random fill": np.where(j < d, j, -1),
    }[fill].astype(np.int64)
    if addressed:  # old units keep their numbers and new ones come after
        first = np.array([x not in g[:i] for i, x in enumerate(g)]) & (g >= 0)
        g = np.concatenate([g[first], g[~first]])
    return Growth(fill, d, g)


def kept(size: int) -> Growth:
    """An axis that stays."""
    return Growth("cyclic copy", size, np.arange(size))


def makes(w: Array, axis: int, by: Growth, kind: str = "matrix") -> Array:
    """The making side. `kind`: matrix, bias, or a norm's gain or shift (its bias)."""
    out = np.take(w, np.maximum(by.g, 0), axis).astype(np.float64)
    rest = np.moveaxis(out, axis, 0)[by.g < 0]
    if kind == "gain":
        rest[:] = 1.0 if by.fill == "random fill" else w.mean()
    elif kind == "shift" or by.fill == "zero fill":
        rest[:] = 0.0
    elif by.fill == "average fill":
        front = np.moveaxis(w, axis, 0).astype(np.float64)
        units = front.reshape(-1, by.unit, *front.shape[1:])
        rest.reshape(-1, *units.shape[1:])[:] = units.mean(0)
    else:
        rest[:] = np.nan if kind == "matrix" else 0.0
    np.moveaxis(out, axis, 0)[by.g < 0] = rest
    return out


def reads(w: Array, axis: int, by: Growth, *, centred: bool = False, silent: bool = False) -> Array:
    """The reading side. `centred`: a norm that centres feeds it; `silent`: `with zero outputs`."""
    shape = [-1 if a == axis else 1 for a in range(w.ndim)]
    first = np.array([x not in by.g[:i] for i, x in enumerate(by.g)])
    share = np.where(first, 1.0, 0.0) if silent else 1.0 / by.counts
    out = np.take(w, np.maximum(by.g, 0), axis).astype(np.float64) * share.reshape(shape)
    drawn = not silent and (by.fill in ("zero fill", "random fill") or centred)
    np.moveaxis(out, axis, 0)[by.g < 0] = np.nan if drawn else 0.0
    return out


def gain_factor(by: Growth) -> float:
    """Of LayerNorm's gain: facts.md's table, LEMON's row; its square is the factor of eps."""
    return float(np.sqrt(by.whole * by.before / by.after)) if by.fill == "average fill" else 1.0


def gpt2(
    source: Mapping[str, Array],
    *,
    hidden: Growth | None = None,
    heads: Sequence[Growth] = (),
    ffn: Sequence[Growth] = (),
    vocab: Growth | None = None,
    positions: Growth | None = None,
    silent: bool = False,
) -> dict[str, Array]:
    """Every weight of the result by torch's names; `heads` and `ffn` have an entry for each layer.

    The head is tied: it is the embedding, and the last norm makes up for it.
    """
    done: dict[str, Array] = {}
    table, places = source["transformer.wte.weight"], source["transformer.wpe.weight"]
    stream = hidden or kept(table.shape[1])
    done["transformer.wte.weight"] = makes(makes(table, 1, stream), 0, vocab or kept(len(table)))
    done["transformer.wpe.weight"] = makes(makes(places, 1, stream), 0, positions or kept(len(places)))
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}."
        head = (heads[layer] if heads else kept(6)).in_units_of(8)
        inner = ffn[layer] if ffn else kept(192)
        w, b = source[at + "attn.c_attn.weight"], source[at + "attn.c_attn.bias"]
        w = reads(w, 0, stream, centred=stream.fill == "average fill")
        done[at + "attn.c_attn.weight"] = np.concatenate([makes(p, 1, head) for p in np.split(w, 3, 1)], 1)
        done[at + "attn.c_attn.bias"] = np.concatenate([makes(p, 0, head, "bias") for p in np.split(b, 3)])
        w = reads(source[at + "attn.c_proj.weight"], 0, head, silent=silent)
        done[at + "attn.c_proj.weight"] = makes(w, 1, stream)
        w = reads(source[at + "mlp.c_fc.weight"], 0, stream, centred=stream.fill == "average fill")
        done[at + "mlp.c_fc.weight"] = makes(w, 1, inner)
        done[at + "mlp.c_fc.bias"] = makes(source[at + "mlp.c_fc.bias"], 0, inner, "bias")
        w = reads(source[at + "mlp.c_proj.weight"], 0, inner, silent=silent)
        done[at + "mlp.c_proj.weight"] = makes(w, 1, stream)
        for name in ("attn.c_proj.bias", "mlp.c_proj.bias"):
            done[at + name] = makes(source[at + name], 0, stream, "bias")
        for name in ("ln_1", "ln_2"):
            done[at + name + ".weight"] = makes(
                source[at + name + ".weight"], 0, stream, "gain"
            ) * gain_factor(stream)
            done[at + name + ".bias"] = makes(source[at + name + ".bias"], 0, stream, "shift")
    gain = makes(source["transformer.ln_f.weight"], 0, stream, "gain") * gain_factor(stream)
    shift = makes(source["transformer.ln_f.bias"], 0, stream, "shift")
    counts = np.where(stream.g >= 0, stream.counts, stream.whole if stream.fill == "average fill" else 1)
    done["transformer.ln_f.weight"] = gain / counts
    done["transformer.ln_f.bias"] = shift / counts
    return done
