"""From scalar expressions to CUDA C++: the text of one kernel under construction.

`Emitter` holds the lines, and the names of values in scopes, one a block of the text. A piece of a walk is `V` *lanes*,
consecutive places along one axis: what differs between lanes is written inside a loop over them, `for (int j...)`, which
the compiler unrolls; loads that lie side by side are made before it, V elements at once; what is equal in all lanes is
written once.

The types in registers and in memory are those of prelude.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from isthmus.backends.cuda.functions import by_value
from isthmus.graph.dtype import Dtype, bfloat16, bool_, complex64, float16, float32, float64
from isthmus.kernel import scalar as s
from isthmus.kernel.graph import Graph, Node
from isthmus.kernel.interpret import JOIN, identity
from isthmus.kernel.loops import Index, Load, Slot, Store, linearize
from isthmus.kernel.scalar import Expr, is_half

_NAMES = {"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64"}
_INFIX_FLOAT = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_INFIX_BITS = {"and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "sqrt": "sqrt", "copysign": "copysign", "fmod": "fmod",
    "exp": "exp", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "cosh": "cosh", "tanh": "tanh", "erfinv": "erfinv", "abs": "fabs",
}  # fmt: skip  # of double; with an f at the end, of float
_OWN = {
    "erf": "erf_f", "min": "min_f", "max": "max_f", "sigmoid": "sigmoid_f", "tan": "tan_f", "sinh": "sinh_f", "arcsinh": "asinh_f", "arccosh": "acosh_f",
    "arctanh": "atanh_f", "pow": "pow_f", "arctan2": "atan2_f",
}  # fmt: skip
# For results that are rounded to 16 bits.
_SHORT = {
    "bfloat16": {"exp": "exp_s", "sigmoid": "sigmoid_s", "tanh": "tanh_b", "erf": "erf_b", "div": "div_s"},
    "float16": {"exp": "exp_s", "sigmoid": "sigmoid_s", "tanh": "tanh_s", "erf": "erf_s"},
}
_PLAIN = {"tan": "tanf", "sinh": "sinhf", "arcsinh": "asinhf", "arccosh": "acoshf", "arctanh": "atanhf", "pow": "powf", "arctan2": "atan2f"}
_INTEGER = {"add": "add_i", "sub": "sub_i", "mul": "mul_i", "min": "min_i", "max": "max_i", "idiv": "div_i", "imod": "mod_i", "ipow": "pow_i",
            "shl": "shl_i", "shr": "shr_i"}  # fmt: skip


def register_type(dtype: Dtype) -> str:
    if dtype is bool_:
        return "bool"
    if dtype is complex64:
        return "c64"
    if dtype is float64:
        return "f64"
    return "f32" if dtype.rank == 2 else _NAMES[dtype.name]


def memory_type(dtype: Dtype) -> str:
    if dtype is bool_:
        return "u8"
    return "f16" if dtype is float16 else "b16" if dtype is bfloat16 else register_type(dtype)


def letter(dtype: Dtype) -> str:
    return "h" if dtype is float16 else "b"


def paired(dtype: Dtype, lanes: int) -> bool:
    """Whether packs of a dtype lie two in a register."""
    return is_half(dtype) and lanes % 2 == 0


def literal(value: Any, dtype: Dtype) -> str:
    if dtype is bool_:
        return "true" if value else "false"
    if dtype is complex64:
        return f"c64{{{literal(value.real, float32)}, {literal(value.imag, float32)}}}"
    if dtype.rank == 1:
        return f"{register_type(dtype)}({int(value) % (1 << 64)}ull)"
    if dtype is float64:
        return f"__longlong_as_double(0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016x}ll)"
    try:
        bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    except OverflowError:
        bits = 0x7F800000 if value > 0 else 0xFF800000
    return f"__int_as_float(0x{bits:08x})"


def cast_text(x: str, of: Dtype, to: Dtype) -> str:
    """C++ for `scalar.cast`'s primitive."""
    if to is bool_:
        return f"({x} != {register_type(of)}(0))"
    if is_half(to):
        return x if is_half(of) and of is to else f"round_{'h' if to is float16 else 'b'}({x})"
    if of.rank == 2 and to.rank == 1:
        return f"to_int<{register_type(to)}>({x})"
    return f"{register_type(to)}({x})"


def operate(e: Expr, x: list[str]) -> str:
    """C++ for one primitive of values `x`."""
    op, kind = e.op, (e.args[0].dtype if e.args else e.dtype)
    if op == "cast":
        return cast_text(x[0], kind, e.dtype)
    if op == "bitcast":
        bits = f"(__float_as_int({x[0]}) >> 16)" if kind is bfloat16 else f"to_h({x[0]})" if kind is float16 else x[0]
        if is_half(e.dtype):
            return f"of_{'h' if e.dtype is float16 else 'b'}(u16({bits}))" if not is_half(kind) else x[0]
        return f"same_bits<{register_type(e.dtype)}>({f'u16({bits})' if is_half(kind) else bits})"
    if op == "select":
        return f"({x[0]} ? {x[1]} : {x[2]})"
    if op == "complex":
        return f"c64{{{x[0]}, {x[1]}}}"
    if op in ("real", "imag"):
        return f"{x[0]}.{'re' if op == 'real' else 'im'}"
    if op in _COMPARE:
        return f"({x[0]} {_COMPARE[op]} {x[1]})"
    if op in _INFIX_BITS:
        return f"{register_type(kind)}({x[0]} {_INFIX_BITS[op]} {x[1]})"
    if op == "not":
        return f"(!{x[0]})" if kind is bool_ else f"{register_type(kind)}(~{x[0]})"
    if kind.rank < 2:
        if op in ("neg", "abs"):
            return f"{op}_i({x[0]})"
        return f"{_INTEGER[op]}({', '.join(x)})"
    short = _SHORT[e.attr].get(op) if e.attr else None
    if short is not None:
        return f"{short}({', '.join(x)})"
    if op in _INFIX_FLOAT:
        return f"({x[0]} {_INFIX_FLOAT[op]} {x[1]})"
    if op == "neg":
        return f"(-{x[0]})"
    if e.attr and op in _PLAIN:
        return f"{_PLAIN[op]}({', '.join(x)})"
    name = _OWN.get(op)
    if name is None:
        name = _FUNCTIONS[op] + ("" if kind is float64 else "f")
    return f"{name}({', '.join(x)})"


def function_text(symbol: str, result: Dtype, names: tuple[str, str], dtype: Dtype, e: Expr) -> str:
    """A device function of two values: the expression `e` of the leaves `left` and `right`."""
    known: dict[int, int] = {}
    lines = []
    for k, x, at in linearize([e], {}, known):
        if x.op in ("left", "right"):
            text = names[x.op == "right"]
        elif x.op == "const":
            text = literal(x.attr, x.dtype)
        else:
            text = operate(x, [f"t{a}" for a in at])
        lines.append(f"    {register_type(x.dtype)} t{k} = {text};")
    kind = register_type(dtype)
    return (
        f"INLINE {register_type(result)} {symbol}({kind} {names[0]}, {kind} {names[1]}) {{\n" + "\n".join(lines) + f"\n    return t{known[id(e)]};\n}}"
    )


def join_function(symbol: str, kind: str, dtype: Dtype) -> str:
    """`symbol(a, b)`: one step of a reduction or of a combining store."""
    left, right = Expr("left", dtype), Expr("right", dtype)
    if kind in ("all", "any"):
        e = s.and_(left, right) if kind == "all" else s.or_(left, right)
    else:
        e = JOIN[kind][0](left, right)
    return function_text(symbol, dtype, ("a", "b"), dtype, e)


def better_function(symbol: str, kind: str, dtype: Dtype) -> str:
    """`symbol(a, b)`: whether `a` displaces `b` as the largest or least; NaN displaces all but NaN."""
    a, b = Expr("left", dtype), Expr("right", dtype)
    order = s.gt if kind == "argmax" else s.lt
    if dtype is complex64:
        e = s.and_(s.complex_before(a, b, order), s.not_(s.or_(s.isnan(s.real(b)), s.isnan(s.imag(b)))))
    elif dtype.rank == 2:
        e = s.or_(order(a, b), s.and_(s.isnan(a), s.not_(s.isnan(b))))
    else:
        e = order(a, b)
    return function_text(symbol, bool_, ("a", "b"), dtype, e)


def identity_text(kind: str, dtype: Dtype) -> str:
    if kind in ("all", "any"):
        return "true" if kind == "all" else "false"
    return literal(identity(kind, dtype), dtype)


class Emitter:
    """One kernel function in the making."""

    def __init__(self, graph: Graph, symbol: str, block: int) -> None:
        self.graph = graph
        self.kernel = graph.kernel
        self.symbol = symbol
        self.block = block
        self.functions: dict[str, str] = {}  # device functions, by symbol
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.scopes: list[dict[int, str]] = [{}]  # node -> name of its value, innermost last
        self.divisors: list[dict[int, str]] = [{}]  # float32 node that all lanes are divided by -> name of its `Divisor`
        self.packs: list[dict[int, str]] = [{}]  # load -> name of an array with its value in each lane
        self.lane_axes: frozenset[int] = frozenset()  # axes whose index differs between lanes
        self.lane_rows = False  # whether results of reductions differ between lanes
        self.contiguous = -1  # the axis along which lanes are consecutive elements, if there is one
        self.aligned = False  # whether every pack lies at a multiple of its bytes
        self.whole = False  # whether every pack is full: nothing asks whether a lane is there
        self.cluster = 1
        self.width = 1  # lanes that are written at once: 2 where 16-bit floats come in pairs
        self.lanes_of: list[dict[int, list[str]]] = [{}]  # node -> names of its value in the lanes written at once
        self.pairs: dict[int, str] = {}  # 16-bit node -> name of a register with both lanes
        self.wanted: list[int] = []
        self.inside: set[int] = set()  # what `prepare` left over
        self.rows: dict[int, str] = {}  # results of reductions
        self.axes: dict[int, str] = {}  # frame axis -> its index (along `contiguous`: that of lane 0)
        self.lane_axis: dict[int, str] = {}  # frame axis -> its index in a lane; `@` stands for the lane
        n_kernel = self.kernel.n_slots
        self.slots = [f"p{k}" for k in range(n_kernel + 3)]
        self.sizes = [self.number(axis.size) for axis in self.kernel.axes]

    # -- text

    def do(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def let(self, kind: str, text: str) -> str:
        name = self.fresh()
        self.do(f"const {kind} {name} = {text};")
        return name

    @contextmanager
    def block_of(self, head: str, unroll: bool = False) -> Iterator[None]:
        if unroll:
            self.do("#pragma unroll")
        self.do(head + " {")
        self.depth += 1
        self.scopes.append({})
        self.packs.append({})
        self.divisors.append({})
        yield
        self.scopes.pop()
        self.packs.pop()
        self.divisors.pop()
        self.depth -= 1
        self.do("}")

    def number(self, x: int | Slot) -> str:
        return f"p{x.number}" if isinstance(x, Slot) else f"{x}ll"

    def text(self) -> str:
        """The function, with what it calls."""
        body = "\n".join(self.lines)
        words = set(re.findall(r"\bp\d+\b", body))
        cluster = f" __cluster_dims__({self.cluster}, 1, 1)" if self.cluster > 1 else ""
        n_slots = self.kernel.n_slots + 3
        bounds = f"{self.block}, 2" if self.cluster > 1 else str(self.block)  # so that one cluster computes while another loads
        head = [f"extern \"C\" __global__ void{cluster} __launch_bounds__({bounds}) {self.symbol}(PARAMETERS({by_value(n_slots) or 1})) {{", "    RELEASE"]
        for k in range(len(self.kernel.buffers), n_slots):
            if f"p{k}" in words:
                head.append(f"    const i64 p{k} = slot(p + {k});")
        for k, dtype in enumerate(self.kernel.buffers):
            head.append(f"    {memory_type(dtype)}* const b{k} = ({memory_type(dtype)}*)__cvta_global_to_generic(slot(p + {k}));")
        head.append("    AWAIT")
        return "\n\n".join([*self.functions.values(), "\n".join(head) + "\n" + body + "\n}"])

    def join(self, kind: str, dtype: Dtype) -> str:
        symbol = f"join_{kind}_{dtype.name}"
        if symbol not in self.functions:
            self.functions[symbol] = join_function(symbol, kind, dtype)
        return symbol

    def better(self, kind: str, dtype: Dtype) -> str:
        symbol = f"better_{kind}_{dtype.name}"
        if symbol not in self.functions:
            self.functions[symbol] = better_function(symbol, kind, dtype)
        return symbol

    # -- values

    def known(self, k: int) -> bool:
        return any(k in scope for scope in self.scopes)

    def name(self, k: int) -> str:
        for scope in reversed(self.scopes):
            if k in scope:
                return scope[k]
        raise KeyError(k)

    def pack(self, k: int) -> str | None:
        for scope in reversed(self.packs):
            if k in scope:
                return scope[k]
        return None

    def varies(self, k: int) -> bool:
        """Whether a node's value differs between lanes."""
        return any(d in self.lane_axes if isinstance(d, int) else self.lane_rows for d in self.graph.nodes[k].deps)

    def side_by_side(self, node: Node) -> bool:
        """Whether the lanes of a load are consecutive elements."""
        load: Load = node.attr
        if any(self.varies(k) for k in node.args):
            return False
        strides = [stride for axis, stride in load.index.terms if axis in self.lane_axes]
        return len(strides) == 1 and strides[0] == 1 and not isinstance(strides[0], Slot) and self.contiguous in dict(load.index.terms)

    def prepare(self, wanted: Iterable[int], lanes: int, count: str) -> list[int]:
        """Writes what `wanted` needs that is equal in all lanes, and the loads of whole packs; gives back what is left, in order."""
        wanted = list(wanted)
        left: list[int] = []
        self.wanted = wanted
        for k in self.graph.needed(wanted, self.known):
            node = self.graph.nodes[k]
            if not self.varies(k):
                self.scopes[-1][k] = self.let(register_type(node.dtype), self.value(k))
            elif node.op == "div" and self.is_divided(node) and not self.varies(node.args[1]):
                self.divisor(node.args[1])
                left.append(k)
            elif node.op == "load" and self.side_by_side(node):
                if self.pack(k) is None:
                    name = self.fresh()
                    self.do(self.pack_declaration(node.dtype, name, lanes))
                    self.load_pack(k, name, lanes, count)
                    self.packs[-1][k] = name
                left.append(k)
            else:
                left.append(k)
        return left

    def is_divided(self, node: Node) -> bool:
        """Whether a quotient is one that a common reciprocal gives to the bit."""
        return node.dtype is float32 and not node.expr.attr

    def divisor(self, k: int) -> None:
        """Writes the reciprocal of node k, by which all lanes are to be divided."""
        if not any(k in scope for scope in self.divisors):
            self.divisors[-1][k] = self.let("Divisor", f"divisor({self.name(k)})")

    def load_pack(self, k: int, name: str, lanes: int, count: str) -> None:
        node = self.graph.nodes[k]
        load: Load = node.attr
        at = f"b{load.buffer} + {self.index(load.index, node.args)}"
        limit = count if load.mask is None else f"({self.name(node.args[-1])} ? {count} : 0)"
        self.do(f"load{'2' if paired(node.dtype, lanes) else ''}<{lanes}, {int(self.aligned)}>({name}, {at}, {limit});")

    def pack_declaration(self, dtype: Dtype, name: str, lanes: int, outer: str = "") -> str:
        """A pack of values as they lie in memory; 16-bit floats two in a register."""
        return f"u32 {name}{outer}[{lanes // 2}];" if paired(dtype, lanes) else f"{memory_type(dtype)} {name}{outer}[{lanes}];"

    @contextmanager
    def lane_loop(self, left: list[int], lanes: int) -> Iterator[None]:
        """Writes, lane by lane, what `prepare` left over. Inside, `lane_value` names values."""
        halves = any(is_half(self.graph.nodes[k].dtype) for k in left)
        self.width = 2 if halves and lanes % 2 == 0 and self.contiguous >= 0 else 1
        with self.block_of(f"for (int j = 0; j < {lanes}; j += {self.width})", unroll=True):
            self.lanes_of.append({})
            self.pairs = {}
            yield
            self.lanes_of.pop()
            self.width = 1

    def at(self, w: int) -> str:
        """The lane that is written w-th."""
        return "j" if w == 0 else f"(j + {w})"

    def finish(self, left: list[int], extra: Iterable[int] = ()) -> None:
        """The values of `left` (or what `extra` wants of it) in the lanes written at once."""
        if self.width == 1:
            for k in left:
                if not self.known(k):
                    self.scopes[-1][k] = self.let(register_type(self.graph.nodes[k].dtype), self.lane_text(k, 0))
            return
        # What is wanted, where sums of pairs stand for their float32 forms.
        self.inside = inside = set(left)
        seen: set[int] = set()
        stack = [*self.wanted, *extra]
        while stack:
            k = stack.pop()
            if k not in inside or k in seen or self.known(k):
                continue
            seen.add(k)
            found = self.pair_sum(k)
            stack.extend(found[1] if found else self.graph.nodes[k].args)
        for k in sorted(seen):
            self.write_pair(k)

    def lane_text(self, k: int, w: int) -> str:
        node = self.graph.nodes[k]
        pack = self.pack(k)
        if pack is None:
            return self.value(k, lane=True, w=w)
        if node.dtype is bool_:
            return f"{pack}[{self.at(w)}] != 0"
        return f"get({pack}[{self.at(w)}])"

    def pair_sum(self, k: int) -> tuple[str, list[int]] | None:
        """Whether a 16-bit node is a sum, difference or product of two of its dtype, rounded once: its function and those."""
        node = self.graph.nodes[k]
        if node.op != "cast" or not is_half(node.dtype):
            return None
        inner = self.graph.nodes[node.args[0]]
        if inner.op not in ("add", "sub", "mul") or inner.dtype is not float32:
            return None
        found = []
        for a in inner.args:
            of = self.graph.nodes[a]
            if of.op != "cast" or self.graph.nodes[of.args[0]].dtype is not node.dtype:
                return None
            found.append(of.args[0])
        if not all(a in self.inside or self.known(a) for a in found):
            return None  # only the float32 form of an operand is at hand
        return f"{inner.op}_{letter(node.dtype)}2", found

    def pair(self, k: int) -> str:
        """A register with both lanes of a 16-bit node."""
        found = self.pairs.get(k)
        if found is None:
            lo, hi = self.lane_value(k, 0), self.lane_value(k, 1)
            found = self.pairs[k] = self.let("u32", f"pair_{letter(self.graph.nodes[k].dtype)}({lo}, {hi})")
        return found

    def write_pair(self, k: int) -> None:
        node = self.graph.nodes[k]
        if is_half(node.dtype):
            kind = letter(node.dtype)
            pack, summed = self.pack(k), self.pair_sum(k)
            if pack is not None:
                self.pairs[k] = f"{pack}[j / 2]"
                return
            if summed is not None:
                self.pairs[k] = self.let("u32", f"{summed[0]}({self.pair(summed[1][0])}, {self.pair(summed[1][1])})")
                return
            if node.op == "cast" and not is_half(self.graph.nodes[node.args[0]].dtype) and self.graph.nodes[node.args[0]].dtype is float32:
                a = node.args[0]
                self.pairs[k] = self.let("u32", f"pair_{kind}({self.lane_value(a, 0)}, {self.lane_value(a, 1)})")
                return
        kind = register_type(node.dtype)
        self.lanes_of[-1][k] = [self.let(kind, self.lane_text(k, w)) for w in range(self.width)]

    def lane_value(self, k: int, w: int) -> str:
        """The name of a node's value in the lane written w-th."""
        for lanes in reversed(self.lanes_of):
            if k in lanes:
                return lanes[k][w]
        if k in self.pairs:
            kind = letter(self.graph.nodes[k].dtype)
            names = [self.let("f32", f"{side}_{kind}({self.pairs[k]})") for side in ("lo", "hi")]
            self.lanes_of[-1][k] = names
            return names[w]
        name = self.name(k)
        return name.replace("[j]", f"[{self.at(w)}]") if w else name

    def put_lane(self, out: str, k: int, dtype: Dtype, lanes: int) -> None:
        """The lanes written at once of node k, into a pack that is to be stored."""
        if paired(dtype, lanes) and self.width == 2:
            self.do(f"{out}[j / 2] = {self.pair(k)};")
        elif paired(dtype, lanes):
            self.do(f"put2_{letter(dtype)}({out}[j / 2], j % 2, {self.lane_value(k, 0)});")
        else:
            for w in range(self.width):
                self.do(f"put({out}[{self.at(w)}], {self.lane_value(k, w)});")

    def store_pack(self, store: Store, out: str, lanes: int) -> None:
        at = f"b{store.buffer} + {self.index(store.index, self.store_values(store))}"
        self.do(f"store{'2' if paired(self.kernel.buffers[store.buffer], lanes) else ''}<{lanes}, {int(self.aligned)}>({at}, {out}, count);")

    def value(self, k: int, lane: bool = False, w: int = 0) -> str:
        """C++ for node k of values that are known (`lane`: in the lane written w-th)."""
        node = self.graph.nodes[k]
        op, e = node.op, node.expr
        if op == "const":
            return literal(e.attr, e.dtype)
        if op == "param":
            slot = self.number(e.attr if isinstance(e.attr, Slot) else Slot(e.attr))
            if e.dtype.rank == 2:
                return f"{register_type(e.dtype)}(__longlong_as_double({slot}))"
            return f"({slot} != 0)" if e.dtype is bool_ else f"{register_type(e.dtype)}({slot})"
        if op == "axis":
            return self.lane_axis[e.attr].replace("@", self.at(w)) if lane and e.attr in self.lane_axes else self.axes[e.attr]
        if op == "row":
            return self.rows[e.attr].replace("[j]", f"[{self.at(w)}]") if w else self.rows[e.attr]
        if op == "load":
            load: Load = e.attr
            element = f"b{load.buffer}[{self.index(load.index, node.args, lane, w)}]"
            text = f"get({element})" if node.dtype is not bool_ else f"({element} != 0)"
            if lane and not self.whole:
                text = f"({self.at(w)} < count ? {text} : {register_type(node.dtype)}{{}})"  # lanes that are not there read nothing
            if load.mask is not None:
                zero = f"{register_type(node.dtype)}{{}}"
                text = f"({self.lane_value(node.args[-1], w)} ? {text} : {zero})"
            return text
        if op == "div" and node.dtype is float32 and not e.attr:
            for scope in reversed(self.divisors):
                if node.args[1] in scope:
                    return f"div_by({self.lane_value(node.args[0], w)}, {scope[node.args[1]]})"
        return operate(e, [self.lane_value(a, w) for a in node.args])

    def index(self, index: Index, values: tuple[int, ...] = (), lane: bool = False, w: int = 0) -> str:
        parts = [] if index.offset == 0 and not isinstance(index.offset, Slot) else [self.number(index.offset)]
        for axis, stride in index.terms:
            at = self.lane_axis[axis].replace("@", self.at(w)) if lane and axis in self.lane_axes else self.axes[axis]
            parts.append(at if stride == 1 and not isinstance(stride, Slot) else f"{at} * {self.number(stride)}")
        for k, (_, stride) in zip(values, index.values, strict=False):
            name = self.lane_value(k, w)
            parts.append(name if stride == 1 and not isinstance(stride, Slot) else f"{name} * {self.number(stride)}")
        return "(" + " + ".join(parts or ["0"]) + ")"

    # -- stores

    def store_values(self, store: Store) -> tuple[int, ...]:
        return tuple(self.graph.number(e) for e, _ in store.index.values)

    def packed_store(self, store: Store) -> bool:
        """Whether a store's lanes are consecutive elements, all of them written."""
        if store.mask is not None or store.combine is not None or any(self.varies(k) for k in self.store_values(store)):
            return False
        strides = [stride for axis, stride in store.index.terms if axis in self.lane_axes]
        return len(strides) == 1 and strides[0] == 1 and not isinstance(strides[0], Slot) and self.contiguous in dict(store.index.terms)

    def put(self, store: Store, lane: bool = True, w: int = 0) -> None:
        """One element, here (`lane`: of the lane written w-th)."""
        at = f"b{store.buffer}[{self.index(store.index, self.store_values(store), lane, w)}]"
        value = self.lane_value(self.graph.number(store.value), w)
        text = f"put({at}, {value});"
        if store.combine is not None:
            dtype = self.kernel.buffers[store.buffer]
            text = f"put({at}, {self.join(store.combine, dtype)}(get({at}), {value}));"
        if store.mask is not None:
            text = f"if ({self.lane_value(self.graph.number(store.mask), w)}) {text}"
        self.do(f"if ({self.at(w)} < count) {text}" if lane and not self.whole else text)

    # -- places

    def coordinates(self, position: str, axes: list[int], into: dict[int, str]) -> None:
        """The indices along `axes` of a row-major position."""
        rest = position
        for axis in reversed(axes[1:]):
            q = self.let("i64", f"quotient({rest}, {self.sizes[axis]})")
            into[axis] = self.let("i64", f"{rest} - {q} * {self.sizes[axis]}")
            rest = q
        if axes:
            into[axes[0]] = rest
