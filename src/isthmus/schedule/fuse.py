"""Which nodes share a kernel, and which are stored: from plan nodes to groups.

Maps and reductions are placed in program order. A group has a frame (loop axes, by position), the reduced axes C once a
reduction joined, and for each member the frame axes its own axes run over. A node joins a group of one of its bases (what
it reads, followed through views that only rename axes) if everything it reads of the group's row values is at its own
place and no other input depends on the group. A reduction over C is the row's next stage; a column sum over all the other
axes becomes a side sum. Since maps can be computed anywhere (schedule/lower.py), being placed only says where a node is
stored if it must be; whether it must is decided at the end, from its readers.

Choices depend on structure only, so equal keys give equal groups.
"""

from __future__ import annotations

from isthmus.graph.node import LEAF, LIBRARY, MAP, PART, REDUCE, UPDATE, VIEW
from isthmus.kernel.place import ONE, Poly
from isthmus.schedule.lower import Group, Root
from isthmus.schedule.sizes import PlanNode

STORED = -1  # stands for a reader that needs its input in memory
MAX_OPS = 64  # of one kernel, roughly: compile time and registers
MAX_PRODUCTS = 4  # results of library ops that a kernel reads: a sum of many would keep all of them waiting
MAX_RECIPE = 24  # nodes that are computed again rather than stored
MAX_DEPTH = 48  # of views and constants that are written into a reader


class Draft:
    """A group in the making."""

    __slots__ = ("before", "column", "cost", "frame", "number", "order", "places", "products", "reduced", "sides", "stages")

    def __init__(self, number: int, frame: list[Poly]) -> None:
        self.number = number
        self.frame = frame
        self.reduced: tuple[int, ...] = ()  # frame axes, in the order they are folded
        self.column = False
        self.places: dict[int, tuple[int, ...]] = {}  # member -> frame axis of each of its axes
        self.stages: dict[int, int] = {}  # member -> how many reductions of the group it waits for
        self.sides: set[int] = set()
        self.before: int = 0  # groups that must run earlier, as bits
        self.cost = 0
        self.order: list[PlanNode] = []
        self.products: set[int] = set()  # results of library ops that it reads: all are in memory when it runs


def is_one(size: Poly) -> bool:
    return size.terms == ONE.terms


def _aligned(p: PlanNode, k: int) -> tuple[int, ...] | None:
    rule = getattr(p.op, "aligned", None)
    if rule is not None:
        found: tuple[int, ...] | None = rule(p, k)
        return found
    if hasattr(p.op, "arity"):
        return tuple(range(p.inputs[k].rank)) if p.inputs[k].rank else ()
    return None


class Fuser:
    """Places the nodes of one plan; `groups()` is the outcome."""

    def __init__(self, nodes: list[PlanNode], outputs: set[int]) -> None:
        self.nodes = nodes
        self.outputs = outputs
        self.drafts: dict[int, Draft] = {}
        self.group_of: dict[int, int] = {}  # node -> draft
        self.free: set[int] = set()  # made of constants and iota alone: written into every reader
        self.recipe: dict[int, int] = {}  # ops that a value takes, from the last reduction or library op
        self.next_number = 0
        self.stored: set[int] = set()

    def run(self) -> None:
        depth: dict[int, int] = {}
        for p in self.nodes:
            if p.merged:
                continue
            below = max((depth.get(x.number, 0) for x in p.inputs), default=0)
            if p.kind == VIEW:
                self.recipe[p.number] = self.recipe.get(p.inputs[0].number, 0)
                if below >= MAX_DEPTH or p.number in self.outputs:
                    self.outputs.add(p.number)
                    self.start(p)
                else:
                    depth[p.number] = below + 1
            elif p.kind in (MAP, REDUCE):
                if p.kind == MAP:
                    self.recipe[p.number] = min(1 << 20, getattr(p.op, "weight", 1) + sum(self.recipe.get(x.number, 0) for x in p.inputs))
                bases = [self.path(p, k) for k in range(len(p.inputs))]
                little = below < MAX_DEPTH and self.recipe.get(p.number, 0) <= MAX_RECIPE
                if p.kind == MAP and little and all(b.number in self.free for b, _ in bases):
                    self.free.add(p.number)
                    depth[p.number] = below + 1
                    continue
                self.place(p, bases)
            elif p.kind in (UPDATE, LIBRARY):
                self.alone(p)
        self.join_siblings()
        self.decide_stored()

    # --- placing ---

    def path(self, p: PlanNode, k: int) -> tuple[PlanNode, tuple[int, ...] | None]:
        """The base that map or reduction `p` reads through input `k`, and for each base axis the axis of `p` (for a
        reduction: of its input) that runs over it, -1 where the base axis is 1. None: read at some other place."""
        x = p.inputs[k]
        axes: list[int] | None
        if p.kind == REDUCE:
            axes = list(range(x.rank))
        else:
            aligned = _aligned(p, k)
            axes = None if aligned is None else list(aligned)
        while x.kind == VIEW and x.number not in self.group_of:
            rule = getattr(x.op, "axes", None)
            if x.op.name in ("alias", "stop_gradient"):
                x = x.inputs[0]
                continue
            if rule is None:
                axes = None
            if axes is not None:
                inner = [-1] * x.inputs[0].rank
                for ins, outs in rule(x) if rule is not None else ():
                    ins = tuple(a for a in ins if not is_one(x.inputs[0].sizes[a]))
                    outs = tuple(a for a in outs if not is_one(x.sizes[a]))
                    if not ins:
                        continue
                    if len(ins) != 1 or len(outs) != 1:
                        axes = None
                        break
                    inner[ins[0]] = axes[outs[0]]
                else:
                    axes = inner
            x = x.inputs[0]
        return x, None if axes is None else tuple(axes)

    def new_draft(self, frame: list[Poly]) -> Draft:
        draft = Draft(self.next_number, frame)
        self.next_number += 1
        self.drafts[draft.number] = draft
        return draft

    def base_of(self, p: PlanNode) -> PlanNode:
        while (p.kind == VIEW and p.number not in self.group_of) or p.kind == PART:
            p = p.inputs[0]
        return p

    def dependencies(self, p: PlanNode) -> int:
        """The groups that what `p` reads belongs to, and all before them, as bits."""
        bits = 0
        for x in p.inputs:
            number = self.group_of.get(self.base_of(x).number)
            if number is not None:
                bits |= self.drafts[number].before | 1 << number
        return bits

    def alone(self, p: PlanNode) -> None:
        draft = self.new_draft([])
        draft.before = self.dependencies(p)
        self.join(draft, p, tuple([-1] * p.rank), 0)

    def join(self, g: Draft, p: PlanNode, place: tuple[int, ...], stage: int) -> None:
        g.places[p.number] = place
        g.stages[p.number] = stage
        g.order.append(p)
        g.cost += getattr(p.op, "weight", 1)
        g.products.update(base.number for base in map(self.base_of, p.inputs) if base.kind == LIBRARY)
        self.group_of[p.number] = g.number
        bits = self.dependencies(p) & ~(1 << g.number)
        if bits & ~g.before:
            g.before |= bits
            mine = 1 << g.number
            for other in self.drafts.values():
                if other.before & mine:
                    other.before |= g.before

    def place(self, p: PlanNode, bases: list[tuple[PlanNode, tuple[int, ...] | None]]) -> None:
        tried: set[int] = set()
        best: tuple[tuple[int, int], Draft, tuple[int, ...], int] | None = None
        for base, axes in bases:
            number = self.group_of.get(base.number)
            if number is None or number in tried or axes is None:
                continue
            tried.add(number)
            g = self.drafts[number]
            if not g.frame and g.order[0].kind in (UPDATE, LIBRARY):
                continue
            found = self.fits(p, g, bases)
            if found is not None and (best is None or (len(g.frame), number) > best[0]):
                best = ((len(g.frame), number), g, *found)
        if best is None:
            self.start(p)
        else:
            _, g, place, stage = best
            if p.kind == REDUCE:
                self.reduce_into(g, p, place, stage)
            else:
                self.join(g, p, place, stage)
        g = self.drafts[self.group_of[p.number]]
        for base, axes in bases:
            number = self.group_of.get(base.number)
            if axes is not None and number is not None and number != g.number:
                self.try_merge(g, self.drafts[number], p, base, axes)

    def start(self, p: PlanNode) -> None:
        """A group of its own: its frame is the node's axes, or what a reduction reads."""
        shape = p.inputs[0].sizes if p.kind == REDUCE else p.sizes
        g = self.new_draft([size for size in shape if not is_one(size)])
        at = iter(range(len(g.frame)))
        place = tuple(-1 if is_one(size) else next(at) for size in shape)
        if p.kind == REDUCE:
            self.reduce_into(g, p, place, 0)
        else:
            self.join(g, p, place, 0)

    def reduce_into(self, g: Draft, p: PlanNode, place: tuple[int, ...], stage: int) -> None:
        """`place` is that of the reduction's input."""
        folded = tuple(place[a] for a in p.attrs[0] if place[a] >= 0)
        kept = tuple(place[a] for a in range(len(place)) if a not in p.attrs[0])
        if g.reduced and folded != g.reduced:
            g.sides.add(p.number)
        elif not g.reduced:
            g.reduced = folded
            g.column = self.is_column(p)
        self.join(g, p, kept, stage + 1)

    def is_column(self, p: PlanNode) -> bool:
        """Whether a reduction leaves the last axis of what it reads (sizes of 1 aside)."""
        sizes = p.inputs[0].sizes
        last = next((a for a in reversed(range(len(sizes))) if not is_one(sizes[a])), -1)
        return last not in p.attrs[0]

    def fits(self, p: PlanNode, g: Draft, bases: list[tuple[PlanNode, tuple[int, ...] | None]]) -> tuple[tuple[int, ...], int] | None:
        """Where `p` (for a reduction: its input) would stand in `g`, and the stage it waits for; None where it may not."""
        if g.cost >= MAX_OPS:
            return None
        made = {base.number for base, _ in bases if base.kind == LIBRARY}
        if made and len(g.products | made) > MAX_PRODUCTS:
            return None
        shape = p.inputs[0].sizes if p.kind == REDUCE else p.sizes
        place = [-1] * len(shape)
        stage = 0
        away: list[PlanNode] = []  # members read at another place
        for base, axes in bases:
            own = g.places.get(base.number)
            if own is None:
                continue
            if base.number in g.sides:
                return None
            if axes is None:
                away.append(base)
                continue
            ok = True
            for axis, frame in zip(axes, own, strict=True):
                if frame < 0:
                    continue
                if axis < 0 or place[axis] not in (-1, frame) or (place[axis] < 0 and frame in place):
                    ok = False
                    break
            if not ok:
                away.append(base)
                continue
            for axis, frame in zip(axes, own, strict=True):
                if frame >= 0:
                    place[axis] = frame
            stage = max(stage, g.stages[base.number])
        # Axes that no member gave: an unused frame axis of the same size, reduced ones first.
        spare = [a for a in (*g.reduced, *range(len(g.frame))) if a not in place]
        for axis, size in enumerate(shape):
            if place[axis] < 0 and not is_one(size):
                for a in spare:
                    if g.frame[a] == size and a not in place:
                        place[axis] = a
                        break
                else:
                    return None
        if any(g.stages[base.number] or self.recipe.get(base.number, 0) > MAX_RECIPE for base in away):
            return None
        used = {a for a in place if a >= 0}
        everything = set(range(len(g.frame)))
        if used != everything and used != everything - set(g.reduced):
            return None
        if p.kind == REDUCE:
            if used != everything:
                return None
            folded = tuple(place[a] for a in p.attrs[0] if place[a] >= 0)
            column = self.is_column(p)
            if not g.reduced:
                if list(folded) != sorted(folded):
                    return None
                last_reduced = (len(g.frame) - 1) in folded
                if last_reduced == column:
                    return None
            elif folded != g.reduced or column != g.column:
                rest = tuple(a for a in range(len(g.frame)) if a not in g.reduced)
                if p.op.name != "sum" or g.column or not column or folded != rest or not g.reduced:
                    return None
        if used != everything and stage == 0 and g.reduced:
            return None  # a row-level map that reads no row value: it would run once a row for nothing
        if g.column and stage and used == everything and self.plain_column(g):
            return None  # a column sum stays alone with its tail, so that its rows can be split over threads
        others = self.dependencies(p) & ~(1 << g.number)
        mine = 1 << g.number
        for number in bits(others):
            if self.drafts[number].before & mine:
                return None
        return tuple(place), stage

    def plain_column(self, g: Draft) -> bool:
        """Whether the reduced axes come first: a sum over rows, as against a softmax over a middle axis."""
        return g.reduced == tuple(range(len(g.reduced)))

    # --- merging ---

    def try_merge(self, g: Draft, h: Draft, p: PlanNode, base: PlanNode, axes: tuple[int, ...]) -> None:
        """`p` of `g` reads `base` of `h` at its own place: make one group of both where that is legal."""
        place_p = g.places[p.number]
        if p.kind == REDUCE:
            return
        if not h.frame or h.order[0].kind in (UPDATE, LIBRARY) or base.number in h.sides or g.cost + h.cost > MAX_OPS:
            return
        if len(g.products | h.products) > MAX_PRODUCTS:
            return
        rename = [-1] * len(h.frame)
        for axis, frame in zip(axes, h.places[base.number], strict=True):
            if frame >= 0:
                if axis < 0 or place_p[axis] < 0:
                    return
                rename[frame] = place_p[axis]
        self.merge(g, h, rename)

    def merge(self, g: Draft, h: Draft, rename: list[int]) -> bool:
        """Moves `h` into `g`, frame axis k of `h` becoming `rename[k]` (-1: to be found by size)."""
        spare = [a for a in (*g.reduced, *range(len(g.frame))) if a not in rename]
        for k, at in enumerate(rename):
            if at < 0:
                for a in spare:
                    if g.frame[a] == h.frame[k] and a not in rename:
                        rename[k] = a
                        break
                else:
                    return False
        if set(rename) != set(range(len(g.frame))):
            return False
        reduced = tuple(rename[a] for a in h.reduced)
        if reduced and g.reduced and (reduced != g.reduced or g.column != h.column):
            return False
        if reduced and (list(reduced) != sorted(reduced) or ((len(g.frame) - 1) in reduced) == h.column):
            return False
        if not self.reads_hold(g, h, rename):
            return False
        column = h.column if reduced else g.column
        whole = len(g.frame)
        if reduced and not g.reduced or g.reduced and not reduced:
            # Members that run over part of the frame must be whole rows or row values of the joint group.
            joint = reduced or g.reduced
            rows = whole - len(joint)
            for d in (g, h):
                if any(sum(a >= 0 for a in place) not in (whole, rows) for place in d.places.values()):
                    return False
        if column and (reduced or g.reduced) == tuple(range(len(reduced or g.reduced))):
            # A plain column sum keeps to itself and its tail.
            if any(stage and sum(a >= 0 for a in d.places[n]) == whole for d in (g, h) for n, stage in d.stages.items()):
                return False
        for d, e in ((g, h), (h, g)):
            for number in bits(e.before & ~(1 << d.number)):
                if self.drafts[number].before >> d.number & 1:
                    return False
        g.reduced = reduced or g.reduced
        g.column = column
        for number, place in h.places.items():
            g.places[number] = tuple(rename[a] if a >= 0 else -1 for a in place)
            self.group_of[number] = g.number
        g.sides |= h.sides
        g.cost += h.cost
        g.products |= h.products
        g.order = sorted(g.order + h.order, key=lambda p: p.number)
        g.before = (g.before | h.before) & ~(1 << g.number) & ~(1 << h.number)
        del self.drafts[h.number]
        old, new = 1 << h.number, 1 << g.number
        for other in self.drafts.values():
            if other.before & old:
                other.before = other.before & ~old | new
            if other.before & new and other is not g:
                other.before |= g.before
        self.restage(g)
        return True

    def reads_hold(self, g: Draft, h: Draft, rename: list[int]) -> bool:
        """Whether each side reads the other's row values at their own place, if at all; and at other places only what is little work.

        What is read at another place is computed there again, with all that it reads: in a chain of such reads that doubles at
        every step.
        """
        for reader, other in ((g, h), (h, g)):
            for p in reader.order:
                for k in range(len(p.inputs)):
                    base, axes = self.path(p, k)
                    stage = other.stages.get(base.number, -1)
                    much = stage > 0 or self.recipe.get(base.number, 0) > MAX_RECIPE
                    if stage < 0 or not much:
                        continue
                    if axes is None or base.number in other.sides:
                        return False
                    mine, theirs = self.input_place(p), other.places[base.number]
                    if reader is h:
                        mine = [rename[a] if a >= 0 else -1 for a in mine]
                    else:
                        theirs = tuple(rename[a] if a >= 0 else -1 for a in theirs)
                    if any(frame >= 0 and (axis < 0 or mine[axis] != frame) for axis, frame in zip(axes, theirs, strict=True)):
                        return False
        return True

    def restage(self, g: Draft) -> None:
        """Counts again how many reductions each member waits for."""
        g.stages = {}
        for p in g.order:
            stage = 0
            for k in range(len(p.inputs)):
                for base in self.reached(p.inputs[k], g):
                    stage = max(stage, g.stages[base])
            g.stages[p.number] = stage + 1 if p.kind == REDUCE else stage

    def reached(self, x: PlanNode, g: Draft) -> list[int]:
        base = self.base_of(x)
        return [base.number] if base.number in g.places and base.number in g.stages else []

    def join_siblings(self) -> None:
        """Groups that read the same stored value whole become one: two reductions of one array read it once."""
        readers: dict[int, list[int]] = {}
        for p in self.nodes:
            if p.merged or p.number not in self.group_of or p.kind not in (MAP, REDUCE):
                continue
            for k in range(len(p.inputs)):
                base, axes = self.path(p, k)
                if axes is None or base.kind not in (LEAF, LIBRARY, UPDATE):
                    continue
                place = self.input_place(p)
                at = [place[a] if a >= 0 else -1 for a in axes]
                whole = [size for size in base.sizes if not is_one(size)]
                if len([a for a in at if a >= 0]) == len(whole) == len(self.drafts[self.group_of[p.number]].frame):
                    readers.setdefault(base.number, []).append(p.number)
        for base_number, members in readers.items():
            base = self.nodes[base_number]
            for first, second in zip(members, members[1:], strict=False):
                a, b = self.group_of[first], self.group_of[second]
                if a == b:
                    continue
                g, h = self.drafts[a], self.drafts[b]
                if g.cost + h.cost > MAX_OPS or not (g.reduced and h.reduced):
                    continue
                frames = [self.base_place(self.nodes[m], base) for m in (first, second)]
                if frames[0] is None or frames[1] is None:
                    continue
                rename = [-1] * len(h.frame)
                for to, source in zip(frames[0], frames[1], strict=True):
                    if source >= 0:
                        rename[source] = to
                self.merge(g, h, rename)

    def input_place(self, p: PlanNode) -> list[int]:
        """The frame axes of what a node of a group reads at its own place."""
        g = self.drafts[self.group_of[p.number]]
        own = g.places[p.number]
        if p.kind != REDUCE:
            return list(own)
        folded = iter([a for a in range(len(g.frame)) if a not in g.reduced] if p.number in g.sides else g.reduced)
        kept = iter(own)
        sizes = p.inputs[0].sizes
        return [(next(folded) if not is_one(sizes[a]) else -1) if a in p.attrs[0] else next(kept) for a in range(len(sizes))]

    def base_place(self, p: PlanNode, base: PlanNode) -> list[int] | None:
        for k in range(len(p.inputs)):
            found, axes = self.path(p, k)
            if found is base and axes is not None:
                place = self.input_place(p)
                return [place[a] if a >= 0 else -1 for a in axes]
        return None

    # --- what is stored ---

    def decide_stored(self) -> None:
        """From the outputs backwards: what a kernel reads of another group is stored there, or computed again here."""
        consumers_of: list[set[int]] = [set() for _ in self.nodes]  # groups that read it; STORED: must be in memory
        for p in reversed(self.nodes):
            number = p.number
            consumers = consumers_of[number]
            output = number in self.outputs
            if p.kind == LEAF or not (consumers or output):
                continue
            if number in self.free and (output or STORED in consumers):
                self.start(p)
            elif number in self.free:
                for x in p.inputs:
                    consumers_of[x.number] |= consumers
                continue
            if p.kind == VIEW and number not in self.outputs:
                consumers_of[p.inputs[0].number] |= consumers
                continue
            if p.kind == PART:
                self.stored.add(number)
                consumers_of[p.inputs[0].number].add(STORED)
                continue
            group = self.group_of[number]
            foreign = len(consumers - {group})
            if p.kind in (MAP, VIEW):
                keep = output or STORED in consumers or (foreign > 0 and not self.cheap(p, consumers - {group}, consumers_of))
            else:
                keep = output or foreign > 0 or p.kind != REDUCE or number in self.drafts[group].sides
            if keep:
                self.stored.add(number)
            readers = ({group} | consumers - {STORED}) if not keep else {group}
            if p.kind == REDUCE:
                readers = {group}
            for k, x in enumerate(p.inputs):
                if p.kind == LIBRARY or (p.kind == UPDATE and k == 0):
                    consumers_of[x.number].add(STORED)
                else:
                    consumers_of[x.number] |= readers if keep or p.kind == REDUCE else consumers

    def cheap(self, p: PlanNode, readers: set[int], consumers_of: list[set[int]]) -> bool:
        """Whether computing a map again in its readers moves no more bytes than storing it, and is little work.

        What all the readers read anyway costs nothing.
        """
        k = len(readers)
        if self.recipe[p.number] > MAX_RECIPE:
            return False
        made_of: dict[int, int] = {}
        stack = [p]
        while stack:
            for x in stack.pop().inputs:
                if x.number in self.free or readers <= consumers_of[x.number]:
                    continue
                if x.kind in (MAP, VIEW):
                    stack.append(x)
                else:
                    made_of[x.number] = self.bytes_of(x)
        return k * sum(made_of.values()) <= (1 + k) * self.bytes_of(p)

    def bytes_of(self, p: PlanNode) -> int:
        """Bytes at a size taken for all unknown ones, so that the choice is the structure's."""
        total = p.dtype.size
        for size in p.sizes:
            total *= sum(c * 61 ** len(m) for m, c in size.terms)
        return total

    # --- the outcome ---

    def group(self, draft: Draft) -> Group | None:
        """The kernel's description, or None where nothing of it is stored."""
        first = draft.order[0]
        if first.kind == UPDATE:
            sizes = first.inputs[1].sizes
            frame = tuple(size for size in sizes if not is_one(size))
            at = iter(range(len(frame)))
            place = tuple(-1 if is_one(size) else next(at) for size in sizes)
            form = "scatter" if first.op.serial else "map"
            return Group(form, frame, frozenset(), (Root("write", first, place),))
        wanted: set[int] = set()
        for p in reversed(draft.order):
            if p.number in self.stored or p.number in wanted and p.kind == REDUCE:
                wanted.add(p.number)
                self._rows_below(p, draft, wanted)
        roots: list[Root] = []
        for p in draft.order:
            if p.number not in wanted:
                continue
            stage = draft.stages[p.number]
            place = draft.places[p.number]
            if p.kind == REDUCE:
                kind = "side" if p.number in draft.sides else "reduce"
                roots.append(Root(kind, p, place, p.number in self.stored, stage - 1))
            else:
                row_level = bool(draft.reduced) and not set(draft.reduced) & {a for a in place if a >= 0}
                roots.append(Root("map", p, place, True, stage - 1 if row_level and stage else stage))
        if not roots:
            return None
        reduced = frozenset(draft.reduced) if any(r.kind in ("reduce", "side") for r in roots) else frozenset()
        form = "map" if not reduced else "column" if draft.column else "row"
        return Group(form, tuple(draft.frame), reduced, tuple(roots))

    def _rows_below(self, p: PlanNode, draft: Draft, wanted: set[int]) -> None:
        """Marks the reductions of the group that `p` is computed from."""
        stack = list(p.inputs)
        seen: set[int] = set()
        while stack:
            x = stack.pop()
            if x.number in seen or x.kind == LEAF:
                continue
            seen.add(x.number)
            if x.kind == REDUCE and draft.places.get(x.number) is not None and x.number not in draft.sides:
                wanted.add(x.number)
                continue
            if x.number in self.stored and x.number not in draft.places:
                continue
            if x.kind in (MAP, VIEW):
                stack.extend(x.inputs)


def bits(mask: int) -> list[int]:
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
