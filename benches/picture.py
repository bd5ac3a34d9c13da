"""Draws throughput and latency of all contestants, as an SVG that light and dark pages suit."""

import math
from html import escape

WIDTH = 1000
ROW = 26
TOP = 84
BOTTOM = 64
LABELS = 330
BARS = (338, 610)
TIMES = (710, 975)
LATENCIES = ("p50_ms", "p99_ms", "p999_ms")

STYLE = """
  svg { --page: #ffffff; --text: #1f2328; --faint: #59636e; --line: #d1d9e0;
        --perdiem: #0969da; --peer: #9a6700; --bare: #818b98; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --text: #f0f6fc; --faint: #9198a1; --line: #3d444d;
          --perdiem: #4493f8; --peer: #d29922; --bare: #656c76; }
  }
  .page { fill: var(--page); }
  text { font: 12px system-ui, sans-serif; fill: var(--text); }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: var(--faint); font-size: 11px; }
  .grid { stroke: var(--line); stroke-width: 1; }
  .spread { stroke: var(--text); stroke-width: 1.5; }
  .perdiem { fill: var(--perdiem); stroke: var(--perdiem); }
  .peer { fill: var(--peer); stroke: var(--peer); }
  .bare { fill: var(--bare); stroke: var(--bare); }
  rect.perdiem, rect.peer, rect.bare { stroke: none; }
"""


def draw(results, caption):
    """The picture of one run's results."""
    rows = list(results.values())
    height = TOP + ROW * len(rows) + BOTTOM
    fastest = nice(max(row["claims_per_second"]["max"] for row in rows))
    bottom = TOP + ROW * len(rows) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(caption)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        text(16, 28, "What claims cost", "title"),
        text(16, 46, caption, "faint"),
        text(BARS[0], 68, "claims a second, median (line: least to most)", "faint"),
        text(TIMES[0], 68, "latency in ms: p50 ● p99 ◆ p99.9 |", "faint"),
    ]
    parts += bar_grid(fastest, bottom)
    slowest, quickest = latency_bounds(rows)
    parts += time_grid(quickest, slowest, bottom)
    for number, row in enumerate(rows):
        y = TOP + ROW * number + ROW / 2
        colour = row["kind"]
        title = f"{row['title']} · {row['connections']}"
        parts.append(text(LABELS, y + 4, title, anchor="end"))
        parts += bar(row["claims_per_second"], fastest, y, colour)
        parts += times(row, quickest, slowest, y, colour)
    parts += legend(height - 18)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def text(x, y, words, style="", anchor="start"):
    style = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def nice(value):
    """The next of 1, 2, 2.5, 5, 10 … times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    steps = (step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10))
    return next(step for step in steps if step >= value)


def bar_grid(fastest, bottom):
    parts = []
    for quarter in range(5):
        x = BARS[0] + (BARS[1] - BARS[0]) * quarter / 4
        parts.append(line(x, TOP, x, bottom, "grid"))
        parts.append(text(x, bottom + 14, f"{fastest * quarter / 4:,.0f}", "faint", "middle"))
    return parts


def bar(rate, fastest, y, colour):
    def place(value):
        return BARS[0] + (BARS[1] - BARS[0]) * value / fastest

    width = place(rate["median"]) - BARS[0]
    return [
        f'<rect class="{colour}" x="{BARS[0]}" y="{y - 8:.1f}" width="{width:.1f}" height="16" '
        'rx="2"/>',
        line(place(rate["min"]), y, place(rate["max"]), y, "spread"),
        text(max(place(rate["max"]), place(rate["median"])) + 6, y + 4, f"{rate['median']:,.0f}"),
    ]


def latency_bounds(rows):
    """The slowest and the quickest time, as powers of ten around all of them."""
    values = [row[key]["median"] for row in rows for key in LATENCIES if key in row]
    return 10 ** math.ceil(math.log10(max(values))), 10 ** math.floor(math.log10(min(values)))


def time_place(value, quickest, slowest):
    part = math.log10(value / quickest) / math.log10(slowest / quickest)
    return TIMES[0] + (TIMES[1] - TIMES[0]) * part


def time_grid(quickest, slowest, bottom):
    parts = []
    for power in range(round(math.log10(quickest)), round(math.log10(slowest)) + 1):
        x = time_place(10.0**power, quickest, slowest)
        parts.append(line(x, TOP, x, bottom, "grid"))
        parts.append(text(x, bottom + 14, f"{10.0**power:g}", "faint", "middle"))
    return parts


def times(row, quickest, slowest, y, colour):
    keys = [key for key in LATENCIES if key in row]
    places = [time_place(row[key]["median"], quickest, slowest) for key in keys]
    middle = places[1]
    parts = [
        line(places[0], y, places[-1], y, colour),
        f'<circle class="{colour}" cx="{places[0]:.1f}" cy="{y:.1f}" r="4.5"/>',
        f'<path class="{colour}" d="M{middle:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>',
    ]
    if len(places) == 3:
        parts.append(line(places[2], y - 5, places[2], y + 5, colour))
    return parts


def legend(y):
    parts = []
    words = [
        ("perdiem", "perdiem: every grant is in its ledger"),
        ("peer", "peers: record nothing"),
        ("bare", "bare limits, no service"),
    ]
    for number, (colour, what) in enumerate(words):
        x = 16 + 300 * number
        parts.append(f'<rect class="{colour}" x="{x}" y="{y - 10}" width="12" height="12" rx="2"/>')
        parts.append(text(x + 18, y, what, "faint"))
    return parts
