"""A drill as one picture: traffic above, states of nodes and queues below, on one axis. Plain SVG, no script."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from operations.drill.accounting import Account
from operations.drill.field import Mark, Sample

WIDTH, LEFT, RIGHT = 1160, 195, 20
PLOT, LANE, SPACE, HEAD = 110, 16, 34, 58
COLOURS = {
    "serving": "#3a9d5d", "incomplete": "#d9b441", "alone": "#d98841", "booting": "#6c9bd2", "frozen": "#9b6cd2",
    "silent": "#c9cdd4", "gone": "#5c6370", "whole": "#3a9d5d", "reduced": "#d9b441", "unavailable": "#cf4b4b",
}  # fmt: skip
MEANING = {
    "serving": "sees all three running", "incomplete": "sees two running", "alone": "sees only itself",
    "booting": "a new instance boots", "frozen": "processes stand still", "silent": "HTTP API does not answer",
    "gone": "no instance", "whole": "leader, three online", "reduced": "leader, two online",
    "unavailable": "no leader seen",
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """Time to pixels."""

    begin: float
    end: float

    def x(self, at: float) -> float:
        """Where a moment is, within the plot."""
        share = (at - self.begin) / max(1e-9, self.end - self.begin)
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> Iterator[int]:
        """Seconds with a label."""
        length = self.end - self.begin
        step = next((s for s in (5, 10, 20, 30, 60, 120, 300, 600) if length / s <= 14), 1200)
        yield from range(0, int(length) + 1, step)


def timeline(
    accounts: Mapping[str, Account], samples: Sequence[Sample], marks: Sequence[Mark], begin: float, end: float
) -> str:
    """The picture as an `<svg>` element."""
    axis, y = Axis(begin, end), float(HEAD)
    parts: list[str] = []
    top = y
    for kind, account in accounts.items():
        parts.append(_traffic(axis, y, kind, account))
        y += PLOT + SPACE
    lanes = [(node, [(s.at, s.nodes.get(node, "")) for s in samples]) for node in _keys(s.nodes for s in samples)]
    parts.append(_heading(y - 8, "nodes"))
    y = _lanes(axis, y, lanes, parts)
    queues = [(queue, [(s.at, s.queues.get(queue, "")) for s in samples]) for queue in _keys(s.queues for s in samples)]
    y += SPACE - 8
    parts.append(_heading(y - 8, "quorum queues"))
    y = _lanes(axis, y, queues, parts)
    parts.append(_axis(axis, y + 4))
    parts.extend(_marks(axis, marks, top, y))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 40}" role="img" '
        f'aria-label="timeline">{"".join(parts)}</svg>'
    )


def _keys(found: Iterator[Mapping[str, str]]) -> list[str]:
    return sorted({key for states in found for key in states})


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11, colour: str = "#3b414a") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
        f'paint-order="stroke" stroke="#fff" stroke-width="{0 if colour == "#fff" else 3}">{escape(text)}</text>'
    )


def _heading(y: float, text: str) -> str:
    return _text(LEFT, y, text, size=12, colour="#1d2127")


def _traffic(axis: Axis, top: float, kind: str, account: Account) -> str:
    """Confirmations as an area, deliveries as a line, the longest gap as a band."""
    highest = max(1, *account.confirmations.values(), *account.deliveries.values())
    # A burst of what had been waiting may be many times the steady rate; it must not flatten everything else.
    steady = sorted(account.confirmations.values())[len(account.confirmations) // 2] if account.confirmations else 1
    scale = min(highest, max(2 * steady, 1))
    bottom = top + PLOT

    def y(count: int) -> float:
        return bottom - min(count, scale) / scale * PLOT

    def steps(counts: Mapping[int, int]) -> str:
        points = []
        for second in range(int(axis.begin), int(axis.end) + 1):
            height = y(counts.get(second, 0))
            points += [f"{axis.x(second):.1f},{height:.1f}", f"{axis.x(second + 1):.1f},{height:.1f}"]
        return " ".join(points)

    area = f"{LEFT},{bottom} {steps(account.confirmations)} {WIDTH - RIGHT},{bottom}"
    parts = [
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{PLOT}" fill="#f6f7f9"/>',
        f'<polygon points="{area}" fill="#8fb8e8"/>',
        f'<polyline points="{steps(account.deliveries)}" fill="none" stroke="#d2691e" stroke-width="1.2"/>',
        _text(LEFT - 8, top + 10, f"{scale}/s", "end"),
        _text(LEFT - 8, bottom, "0", "end"),
        _heading(top - 8, f"clients: {kind}"),
    ]
    if gap := account.gap:
        x, width = axis.x(gap.begin), max(1.5, axis.x(gap.end) - axis.x(gap.begin))
        # The label goes to the side that has room.
        right = x + width < WIDTH - 260
        label = f"longest gap {gap.seconds:.2f} s"
        parts += [
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{PLOT}" fill="#cf4b4b" fill-opacity="0.25"/>',
            _text(x + width + 5 if right else x - 5, top + 14, label, "start" if right else "end", 12, "#a32626"),
        ]
    return "".join(parts)


def _lanes(axis: Axis, y: float, lanes: Sequence[tuple[str, Sequence[tuple[float, str]]]], parts: list[str]) -> float:
    for name, states in lanes:
        shown = name if len(name) <= 30 else "…" + name[-29:]
        parts.append(_text(LEFT - 8, y + LANE - 5, shown, "end"))
        for begin, end, state in _runs(states, axis.end):
            x = axis.x(begin)
            title = f"<title>{escape(f'{name}: {state} ({MEANING.get(state, state)})')}</title>"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(0.8, axis.x(end) - x):.1f}" height="{LANE - 3}" '
                f'fill="{COLOURS.get(state, "#e6e8eb")}">{title}</rect>'
            )
        y += LANE
    return y


def _runs(states: Sequence[tuple[float, str]], end: float) -> Iterator[tuple[float, float, str]]:
    """Stretches of one state."""
    begin = 0
    for index in range(1, len(states) + 1):
        if index == len(states) or states[index][1] != states[begin][1]:
            yield states[begin][0], states[index][0] if index < len(states) else end, states[begin][1]
            begin = index


def _axis(axis: Axis, y: float) -> str:
    ticks = []
    for second in axis.ticks():
        x = axis.x(axis.begin + second)
        ticks.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}" stroke="#888"/>')
        ticks.append(_text(x, y + 16, str(second), "middle"))
    return "".join(ticks) + _text(WIDTH - RIGHT, y + 30, "seconds", "end")


def _marks(axis: Axis, marks: Sequence[Mark], top: float, bottom: float) -> Iterator[str]:
    """Numbered lines; where two would touch, the numbers stand in two rows."""
    last = (-100.0, -100.0)
    for number, mark in enumerate(marks, 1):
        x = axis.x(mark.at)
        row = 1 if x - last[0] < 16 else 0
        last = (last[0], x) if row else (x, last[1])
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 46}" y2="{bottom}" stroke="#1d2127" stroke-dasharray="3 3" '
            f'stroke-width="0.8"><title>{escape(mark.what)}</title></line>'
            f'<circle cx="{x:.1f}" cy="{top - 46 + row * 16}" r="7.5" fill="#1d2127"/>'
            + _text(x, top - 42.5 + row * 16, str(number), "middle", 9, "#fff")
        )
