"""Where the boxes and arrows of a picture go: layers from top to bottom, arrows that never run behind a box.

An arrow that spans several layers passes each of them in a slot of its own, kept free between the boxes; arrows of one value
share these slots until they part. Between layers arrows are curves, and there are no boxes there. Lengths are in points, and y
grows downwards.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP, SLOT = 22.0, 14.0  # between boxes, and between an arrow and what is next to it
RISE = 44.0  # from a layer to the next, at least
MANY = 3_000  # boxes and slots beyond which the order is improved a few times only
Point = tuple[float, float]
Size = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the lower border of a box to the upper border of another: corners that the line visits, two for each layer passed.

    The pieces from an odd corner to the next are curves between two layers, the others straight down.
    """

    source: str
    target: str
    corners: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Centres of the boxes, the arrows, and the size of the whole."""

    centres: Mapping[str, Point]
    arrows: tuple[Arrow, ...]
    size: Size


def arrange(sizes: Mapping[str, Size], sources: Mapping[str, Sequence[str]]) -> Layout:
    """Boxes of these sizes, each below its sources. Keys come in the order of dataflow."""
    return _Layers(sizes, {key: tuple(dict.fromkeys(found)) for key, found in sources.items()}).layout()


def _levels(sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """A box one layer below its lowest source; inputs and chains are pulled down to where they are used."""
    users: dict[str, list[str]] = {key: [] for key in sources}
    level: dict[str, int] = {}
    for key, found in sources.items():
        level[key] = 1 + max((level[s] for s in found), default=-1)
        for s in found:
            users[s].append(key)
    for key in reversed(list(sources)):
        if users[key] and len(users[key]) >= len(sources[key]):
            level[key] = min(level[u] for u in users[key]) - 1
    return level


class _Layers:
    """A place in a layer is the key of a box, or ``(key, layer)``: the slot of that box's arrows."""

    def __init__(self, sizes: Mapping[str, Size], sources: Mapping[str, Sequence[str]]):
        self.sizes = sizes
        self.sources = sources
        self.level = _levels(sources)
        self.rows: list[list[Hashable]] = [[] for _ in range(1 + max(self.level.values(), default=0))]
        self.above: dict[Hashable, list[Hashable]] = {}
        self.below: dict[Hashable, list[Hashable]] = {}
        for key in sources:
            self._place(key, self.level[key])
        self.routes = {(s, key): self._route(s, key) for key, found in sources.items() for s in found}
        self._order()
        self.x = self._columns()

    def _place(self, place: Hashable, level: int) -> None:
        self.rows[level].append(place)
        self.above[place], self.below[place] = [], []

    def _route(self, source: str, target: str) -> list[Hashable]:
        """The places an arrow visits."""
        route: list[Hashable] = [source]
        for level in range(self.level[source] + 1, self.level[target]):
            if (source, level) not in self.above:
                self._place((source, level), level)
            route.append((source, level))
        route.append(target)
        for upper, lower in pairwise(route):
            if lower not in self.below[upper]:
                self.below[upper].append(lower)
                self.above[lower].append(upper)
        return route

    # -- the order within layers: that with the fewest crossings that sweeps down and up find ---------------------------
    def _order(self) -> None:
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(24 if len(self.above) < MANY else 4):
            down = sweep % 2 == 0
            rows = self.rows if down else self.rows[::-1]
            for fixed, row in pairwise(rows):
                index = {place: k for k, place in enumerate(fixed)}
                own = {place: k for k, place in enumerate(row)}
                linked = self.above if down else self.below

                def mean(place: Hashable, index: dict[Hashable, int] = index, own: dict[Hashable, int] = own) -> float:
                    near = [index[p] for p in linked[place]]  # noqa: B023 - called before the loop goes on
                    return sum(near) / len(near) if near else own[place] * len(index) / len(own)

                row.sort(key=mean)
            found = self._crossings()
            if found < fewest:
                best, fewest = [list(row) for row in self.rows], found
        self.rows = best

    def _crossings(self) -> int:
        total = 0
        for upper, lower in pairwise(self.rows):
            index = {place: k for k, place in enumerate(lower)}
            seen: list[int] = []
            for place in upper:
                ends = sorted(index[p] for p in self.below[place])
                total += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return total

    # -- places across: near what they are linked to, in the order found, without touching ------------------------------
    def _columns(self) -> dict[Hashable, float]:
        x: dict[Hashable, float] = {}
        for row in self.rows:
            offsets = self._offsets(row)
            x |= {place: at - offsets[-1] / 2 for place, at in zip(row, offsets, strict=True)}
        for sweep in range(80 if len(self.above) < MANY else 4):
            for row in self.rows if sweep % 2 == 0 else self.rows[::-1]:
                wanted, weights = [], []
                for place in row:
                    near = [*self.above[place], *self.below[place]]
                    wanted.append(sum(x[p] for p in near) / len(near) if near else x[place])
                    weights.append(4.0 if isinstance(place, tuple) else 1.0)  # long arrows are straight
                x |= zip(row, apart(wanted, weights, self._offsets(row)), strict=True)
        return x

    def _offsets(self, row: Sequence[Hashable]) -> list[float]:
        """How far from the first each place has to be at least."""
        offsets = [0.0]
        for left, right in pairwise(row):
            gap = SLOT if isinstance(left, tuple) or isinstance(right, tuple) else GAP
            offsets.append(offsets[-1] + (self._width(left) + self._width(right)) / 2 + gap)
        return offsets

    def _width(self, place: Hashable) -> float:
        return self.sizes[place][0] if isinstance(place, str) else 0.0

    # -- the picture ----------------------------------------------------------------------------------------------------
    def layout(self) -> Layout:
        left = min((self.x[k] - self._width(k) / 2 for k in self.x), default=0.0)
        right = max((self.x[k] + self._width(k) / 2 for k in self.x), default=0.0)
        self.x = {place: x - left for place, x in self.x.items()}
        tops, bottoms, y = [], [], 0.0
        for k, row in enumerate(self.rows):
            height = max((self.sizes[p][1] for p in row if isinstance(p, str)), default=0.0)
            tops.append(y)
            bottoms.append(y + height)
            lines = sum(len(self.below[p]) for p in row)
            far = max((abs(self.x[p] - self.x[q]) for p in row for q in self.below[p]), default=0.0)
            y += height + (RISE + min(60.0, 1.5 * lines) + min(40.0, far / 12) if k + 1 < len(self.rows) else 0.0)
        centres = {key: (self.x[key], (tops[n] + bottoms[n]) / 2) for key, n in self.level.items()}
        arrows = tuple(Arrow(s, t, self._corners(route, centres, tops, bottoms)) for (s, t), route in self.routes.items())
        return Layout(centres, arrows, (right - left, y))

    def _corners(
        self, route: list[Hashable], centres: Mapping[str, Point], tops: list[float], bottoms: list[float]
    ) -> tuple[Point, ...]:
        first, last = route[0], route[-1]
        assert isinstance(first, str) and isinstance(last, str)
        start, end = self._port(first, route[1], self.below), self._port(last, route[-2], self.above)
        level = self.level[first]
        corners = [(start, centres[first][1] + self.sizes[first][1] / 2), (start, bottoms[level])]
        for k, place in enumerate(route[1:-1], level + 1):
            corners += [(self.x[place], tops[k]), (self.x[place], bottoms[k])]
        n = self.level[last]
        return (*corners, (end, tops[n]), (end, centres[last][1] - self.sizes[last][1] / 2))

    def _port(self, key: str, other: Hashable, linked: Mapping[Hashable, list[Hashable]]) -> float:
        """Where an arrow meets its box: side by side, in the order of what is at their other ends."""
        order = sorted(linked[key], key=lambda p: self.x[p])
        span = min(0.6 * self.sizes[key][0], 16.0 * (len(order) - 1))
        share = order.index(other) / (len(order) - 1) - 0.5 if len(order) > 1 else 0.0
        return self.x[key] + span * share


def apart(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Places at least as far apart as ``offsets`` say, with the least weighted squares from those wanted."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, members: means rise from block to block
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while blocks and blocks[-1][0] >= mean:
            before, heavy, members = blocks.pop()
            mean = (mean * total + before * heavy) / (total + heavy)
            total, count = total + heavy, count + members
        blocks.append((mean, total, count))
    flat = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]
