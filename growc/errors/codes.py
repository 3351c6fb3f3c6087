"""Every error code: its title, its exit status, and the page that `growc explain CODE` prints.

G1xx is syntax and G2xx what is wrong without looking at a model (both exit 2); G3xx a model that cannot be
read or cannot become what is asked (3); G4xx a judgement that failed (1); G5xx what the system refused (4);
G900 an internal error (70). docs/errors.md is this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc


@dataclass(frozen=True)
class Code:
    """What a code stands for."""

    title: str
    status: int
    explanation: str


STATUS = {"G1": 2, "G2": 2, "G3": 3, "G4": 1, "G5": 4, "G503": 130, "G9": 70}
"""The exit status of each range of codes, and of those that have another one."""

PAGES = """
G101 unexpected character
    The character has no meaning outside strings and comments. Text that was copied from a web page
    often brings typographic quotes, dashes and signs along.

        match “gpt2.onnx” with tail copy      # wrong
        match "gpt2.onnx" with tail copy      # right

G102 unterminated string
    A string ends on the line that it starts on, with a double quote. It has no escapes: what stands
    between the quotes is the name, backslashes included.

        include "width.grow       # wrong
        include "width.grow"      # right

G103 unknown word
    A word stands where the language has words of its own, and it is none of them. The help names the
    nearest one. Keywords are lower case.

        widen fnn to 4096 with tial copy      # wrong
        widen ffn to 4096 with tail copy      # right

G104 something else is expected
    The statement is well formed up to the place that the caret shows, and does not go on like this. The
    help shows the statement's form.

        widen ffn 4096 with tail copy         # wrong: `to` is missing
        widen ffn to 4096 with tail copy      # right

G105 unbalanced bracket
    A bracket is opened and never closed, or closed and never opened. An open bracket continues a line;
    a verb at the start of a line ends it all the same, so that the rest of the file is still read.

        in encoder { widen ffn to 8 with tail copy        # wrong
        in encoder { widen ffn to 8 with tail copy }      # right

G106 malformed number
    An integer is written in digits, and may end in K, M or B for thousands, millions and billions.
    `noise` and `preserved within` take decimal numbers too.

        expect parameters <= 355m      # wrong
        expect parameters <= 355M      # right

G107 nested too deeply, or too long
    An expression has at most 100 operators and brackets, scopes nest at most 20 deep and includes 50. A
    `let` gives a name to a part of an expression. A recipe has at most 10,000 statements, counted with
    those that it includes, as often as it does.

G200 wrong command line
    The command does not exist, or does not take these arguments. `growc --help` lists all of them.

G201 unknown name
    A name in an expression is an axis or a `let` above it, in the same block or in one around it.

        widen hidden to width with tail copy      # wrong: nothing says what `width` is

        let width = 1024                          # right
        widen hidden to width with tail copy

G202 name already taken
    A `let` may not take the name of an axis, of a keyword, or of another `let` of the recipe and of
    what it includes: a name means one thing everywhere, and `-p` sets that.

        let hidden = 768      # wrong
        let width = 768       # right

G203 parameter that the recipe lacks
    `-p NAME=EXPR` gives another value to a `let` of the recipe; this recipe has none of this name.

        growc plan -p widht=1024 recipe.grow model.onnx      # wrong
        growc plan -p width=1024 recipe.grow model.onnx      # right

G204 options that contradict each other
    An option stands once in a statement, and must have something to act on: `split`, `noise … on
    copies` and `noise … balanced` need a fill that makes copies, and copies that carry a share.

        widen ffn to 8 with zero fill split random         # wrong: nothing is copied
        widen ffn to 8 with uniform copy split random      # right

G205 option that does not fit the axis
    `with zero outputs` is for units whose outputs are added up: those of `ffn`, `heads`, `experts`,
    `channels`.

        widen hidden to 1024 with tail copy with zero outputs      # wrong
        widen ffn to 4096 with tail copy with zero outputs         # right

G206 number out of range
    A size, a number of samples and a number of layers are at least 1; a seed and a noise at least 0; a
    range of layers holds at least one layer. `0-2` is a difference, and no range: it would be the layer -2,
    the last but one; `0..2` are the layers 0 and 1.

        widen ffn to 4096 with tail copy noise -0.01      # wrong
        widen ffn to 4096 with tail copy noise 0.01       # right

G207 included recipe that cannot be read
    The path of an `include` is relative to the file that it stands in. It leads to a file of at most 1 MB,
    and not to a pipe or a device. Where the file's real name does not end in `.grow`, a mistake in it is told
    by its line and column, without its text.

        include "recipes/width.grow"      # wrong, in recipes/all.grow
        include "width.grow"              # right

G208 recipe that includes itself
    A recipe includes itself, at once or by way of others; the notes show the way.

        include "a.grow"      # wrong, in a.grow

G209 not in this version
    The statement is a statement of the language, but this version of growc cannot do it yet. It is
    refused before a model is looked at. This version does `let`, `include`, `widen` with every fill and
    option, `subclone` and `reorder` on width and layers, `stack`, `arrange` and
    `drop`, `match`, `measure importance`, `untie head`, `expect`, and every scope.

G210 statement that does not fit the axis
    Layers are stacked, not widened; width is widened, not stacked.

        widen layers to 24 with tail copy      # wrong
        stack layers to 24 by last             # right

G211 axis that can lie in no such scope
    The residual stream goes through all layers, and the list of layers is itself no part of a layer.

        in layers 0..6 { widen hidden to 1024 with tail copy }      # wrong
        in layers 0..6 { widen ffn to 4096 with tail copy }         # right

G212 arithmetic that does not come out whole
    Sizes are integers, so `/` must come out whole. Expressions are left-associative: multiply first.

        let width = 768 / 5 * 10      # wrong: 768 / 5 is not whole
        let width = 768 * 10 / 5      # right

G213 recipe that cannot be read
    The file does not exist, may not be read, or is not text in UTF-8.

G214 importance that was not measured
    `by importance` ranks by scores, and a `measure importance` above it makes them.

        measure importance on "calibration.npz" samples 128
        subclone ffn to ffn / 2 by importance

G301 sizes that contradict each other
    After the last statement the sizes of axes that are tied do not fit: the model says that one is a
    multiple of the other, a sum with it, or the same. The notes name the nodes that tie them.

        widen heads to 15 with neighbor copy      # wrong on a model with 4 key/value heads
        widen heads to 16 with neighbor copy      # right

G302 axis that the model lacks
    The model has no axis of this role; `growc inspect MODEL` lists those that it has. Any other axis is
    named by a parameter that bears it: `axis 0 of "fc1.weight"`. Nor can a statement mean layers that are
    not there, or leave none: they are numbered from 0, and negative numbers count from the end.

G303 size on the wrong side of today's
    `widen` is for more and `subclone` for less. The size that the axis has today is allowed in both,
    and does nothing.

        widen ffn to 1024 with tail copy            # wrong on a model with 2048
        subclone ffn to 1024 by magnitude           # right

G304 frozen axis
    The axis goes through a node that growc cannot account for at another size: an operator that it does
    not know, or one that orders or normalises along the axis. The notes name the node. `growc inspect
    MODEL` lists everything that is frozen.

G305 fill that this axis cannot take
    What the outside numbers (`vocab`, `positions`, axes of inputs and outputs) keeps its numbers, so
    that new units come after the old; units that belong together (heads, groups, blocks) are copied
    together, so that sizes must be multiples of them.

        widen hidden to 1000 with tail copy in blocks of 64      # wrong: 1000 is no multiple of 64
        widen hidden to 1024 with tail copy in blocks of 64      # right

G306 no parameter of this name
    No parameter's name matches the glob. `*` matches within dots and `**` across them; the notes list
    near names.

        widen axis 0 of "fc1" to 64 with tail copy             # wrong: no whole name
        widen axis 0 of "**.fc1.weight" to 64 with tail copy   # right

G307 axis that does not lie in the scope
    What the statement is to resize lies outside the scope around it, or only in part inside.

G308 size that cannot be accounted for
    After all weights and shape constants were rewritten, a node of the new graph would still not give
    what the plan demands. Nothing is written: growc emits only what it can account for. The notes name
    the node.

G309 model that this version cannot grow
    The recipe is fine and the model is valid, but this combination is not implemented yet. The notes
    say what stands in the way.

G310 model that cannot be read
    A model is an `.onnx` file, with or without external data, a Hugging Face checkpoint directory, or a
    `.pt2` program of torch.export. This one is missing, damaged, or none of them.

G311 model that is not valid
    The file can be read, but what it says is no valid model: a value that nothing computes, shapes that
    do not fit, external data that ends too early.

G312 arithmetic that does not come out for this model
    An expression divides a size of the model, and with this model's sizes the quotient is not whole.

        subclone hidden to 2 * hidden / 3 by magnitude      # wrong on a model with 1024

G313 ranking that this axis cannot take
    The outside knows the units of an addressed axis by their numbers (`vocab`, `positions`, axes of model
    outputs), so that only `first` and `keep` choose among them. `even` spreads a number of units and is no
    order. The file of `keep` lists as many units as are to stay, one number a line, each once.

        subclone vocab to 1000 by magnitude              # wrong
        subclone vocab to 1000 by keep "tokens.txt"      # right

G314 layer that is needed where it stands
    A layer cannot go, or cannot stand in another place, because something outside of the layers reads what
    it computes, or because another layer does and would stand before it, or because the stream has another
    element type or other axes there than the layer takes. The message names the node or the value.

G315 importance that is measured too late
    Importance is that of the source, for all rankings that follow: `measure importance` stands above every
    statement that changes the model.

        subclone ffn to ffn / 2 by first
        measure importance on "calibration.npz"      # wrong: one line too late

G316 optimizer state that does not fit
    The optimizer's state is no state of Adam, AdamW or SGD, or its parameters are not those of the model.
    It has no names: what it numbers are the parameters in the order of `named_parameters`, or those that
    decay and then the rest, as a Trainer has them. Shapes must agree.

G317 module that cannot be traced
    What a module computes is found by torch.export, which runs its forward without values. A forward whose
    course depends on values, or that runs on none of the inputs that growc makes, cannot be captured. The
    notes give torch's reason; `example_inputs` gives inputs where growc finds none.

G318 sizes that the model's class cannot have
    A checkpoint is loaded by a class of transformers, which makes all of its sizes from the numbers of a
    config. No values of these numbers give what was asked for: mostly since the class ties two sizes that
    the model itself does not, such as the heads to the stream (GPT-2). The notes name the tensor and the
    field, the help what to write too. Or the class computes a weight that is to change, and not by its norm
    (`weight_norm`), so that nothing that it stores gives the planned one. A module can have all this: in
    Python `growc.apply(..., keep_class=False)` gives one.

        widen heads to 16 with neighbor copy          # wrong where hidden = heads x 64 in the class
        widen hidden to 1024 with neighbor copy       # right: both
        widen heads to 16 with neighbor copy

G319 config that computes something else
    The config has the planned sizes, and its class does not compute what was planned: other operators, other
    numbers in them, other constants, or tensors that are one in one and two in the other. The note names the
    first difference. Nothing was written.

G320 mode that a grown module has no graph for
    A module that growc makes has a graph for evaluation and one for training, each captured from the source
    in that mode. Some modules cannot be captured in training: those that drop layers at random, for example.

G321 module that its class does not build
    A module of transformers becomes one of the same class, from another config. That takes a module that is
    what its class builds from its config: with other parts put in, tensors tied by hand, or numbers in it
    changed, another config would say nothing of these. The note names the first difference. In Python,
    `growc.apply(..., keep_class=False)` gives a module of growc's own, which keeps no class and no config.

G322 weights that do not fit their module
    A state dict is given beside a module, and its names or sizes are others than the module's: every tensor
    of the module's state dict must be there by one of its names, in its size, and no other. What is tied in
    the module may stand there once, or several times with the same numbers. Values that no state dict holds
    are computed by the class; a module on meta has none of them, unless its class is one of transformers.

G323 inputs that cannot be read
    The file of a `measure importance`, or of `--inputs`, is missing or damaged, or is no `.npz` or `.npy`
    file of plain arrays: objects of Python are never read. Its path is relative to the recipe that names it.

        measure importance on "calib.npz"            # wrong, if it lies in data/
        measure importance on "data/calib.npz"       # right

G401 expectation that failed
    An `expect` of the recipe does not hold for the result. Nothing was written.

G402 refuted certificate
    The plan was certified as exact, and the outputs differ by more than the model's own rounding.
    Nothing was written. This is a bug in growc: please report it, with the report file.

G403 verification that could not run
    onnxruntime cannot load or run the source or the result, so nothing was verified and nothing was
    written. `--inputs FILE.npz` gives inputs where growc cannot draw any; `--no-verify` writes without
    verification.

G404 models that differ
    `growc verify` found outputs that differ by more than `--within` allows.

G405 recipe that is not formatted
    `growc fmt --check` would change the file. `growc fmt FILE` changes it.

G406 module that is not its plan
    A module is made of a plan, and the plan is run in onnxruntime beside it. They differ by more than the
    module's own rounding, so no module is given. This is a bug in growc: please report it.

G501 target that exists
    The output exists, and growc did not make it. `--force` replaces it; `-o OUT` writes elsewhere.

G502 refused by the system
    There is no space, on disk or in memory, no permission, or another growc is writing the same output.
    What a plan takes in memory is judged before it is made, from the sizes that are asked for and the weights
    that have them.

G503 interrupted
    Ctrl-C, or a signal that asks a program to end, came before the result was in place. Nothing was
    written, and what had been made so far is gone; but importance that was measured is kept, and the same
    measurement goes on from there.

G900 internal error
    A bug in growc. Nothing was written but the report file, which says what happened: please send it.
"""
"""For each code its title, and its page."""

CODES = {
    code: Code(title, STATUS.get(code, STATUS[code[:2]]), cleandoc(page))
    for code, title, page in re.findall(r"(?ms)^(G\d+) ([^\n]+)(.+?)(?=^G\d|\Z)", PAGES)
}
"""Every code that a diagnostic may carry, in order."""
