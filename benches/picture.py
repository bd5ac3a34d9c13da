"""Draws the rate and the latency of all contestants as an SVG, for light and dark pages."""

import statistics
from html import escape

WIDTH, ROW, TOP, BOTTOM = 860, 24, 66, 40
LABELS, BARS, LATENCY = 210, 220, 640
BAR_WIDTH = 330
STYLE = """
  svg { --page: #ffffff; --text: #1f2328; --faint: #59636e;
        --perdiem: #0969da; --peer: #9a6700; --bare: #818b98; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #0d1117; --text: #f0f6fc; --faint: #9198a1;
          --perdiem: #4493f8; --peer: #d29922; --bare: #656c76; }
  }
  .page { fill: var(--page); }
  text { font: 12px system-ui, sans-serif; fill: var(--text); }
  .title { font-size: 15px; font-weight: 600; }
  .faint { fill: var(--faint); font-size: 11px; }
  .spread { stroke: var(--text); stroke-width: 1.5; }
  .perdiem { fill: var(--perdiem); } .peer { fill: var(--peer); } .bare { fill: var(--bare); }
"""
LEGEND = {
    "perdiem": "perdiem: every grant is in its ledger",
    "peer": "peers: they record nothing",
    "bare": "no service: a route that does nothing",
}


def draw(results, caption):
    """The picture of one run's results."""
    # The rate of a lone client is too small for this scale. The table has its latency.
    rows = {key: row for key, row in results.items() if not key.endswith("@1")}
    most = max(one["rate"] for row in rows.values() for one in row["rounds"])
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(caption)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
        text(16, 26, "Rate and latency of claims", "title"),
        text(16, 44, caption, "faint"),
        text(BARS, 60, "claims a second: median, minimum to maximum", "faint"),
        text(LATENCY, 60, "p50 and p99 in ms", "faint"),
    ]
    for number, (key, row) in enumerate(rows.items()):
        y = TOP + ROW * number + ROW / 2
        parts += [text(LABELS, y + 4, key.replace("@", " · "), anchor="end")]
        parts += bar([one["rate"] * BAR_WIDTH / most for one in row["rounds"]], y, row["kind"])
        rate, p50, p99 = (
            statistics.median(one[what] for one in row["rounds"])
            for what in ("rate", "p50_ms", "p99_ms")
        )
        parts.append(text(LATENCY - 20, y + 4, f"{rate:,.0f}", anchor="end"))
        parts.append(text(LATENCY, y + 4, f"{p50:.1f}   {p99:.1f}"))
    for number, (kind, words) in enumerate(LEGEND.items()):
        x = 16 + 280 * number
        parts.append(f'<rect class="{kind}" x="{x}" y="{height - 26}" width="12" height="12"/>')
        parts.append(text(x + 18, height - 16, words, "faint"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def bar(widths, y, kind):
    least, middle, most = min(widths), statistics.median(widths), max(widths)
    return [
        f'<rect class="{kind}" x="{BARS}" y="{y - 8:.1f}" width="{middle:.1f}" height="16" rx="2"/>',
        f'<line class="spread" x1="{BARS + least:.1f}" y1="{y:.1f}" x2="{BARS + most:.1f}" '
        f'y2="{y:.1f}"/>',
    ]


def text(x, y, words, style="", anchor="start"):
    style = f' class="{style}"' if style else ""
    words = escape(words).replace("   ", "&#160;&#160;&#160;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{words}</text>'
