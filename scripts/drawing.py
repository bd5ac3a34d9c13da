"""What the pictures in docs/pictures are drawn with: boxes, arrows and texts, for light and dark pages.

A picture checks itself: each text is inside the picture and fits its box, no two texts overlap, and
no line goes through a text. The width of a text is estimated for a wide font.
"""

import argparse
import html
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "docs" / "pictures"

STYLE = """
text { font: 13px sans-serif; fill: #24292f; }
.small { font-size: 12px; fill: #57606a; }
.strong { font-weight: bold; }
.code { font-family: monospace; }
.axis { stroke: #57606a; }
.max { stroke: #9a6700; stroke-dasharray: 5 4; }
.used { fill: none; stroke: #0969da; stroke-width: 2; }
.window { fill: #0969da; fill-opacity: 0.08; }
.odd { fill-opacity: 0.18; }
.granted { fill: #1a7f37; }
.denied { stroke: #cf222e; stroke-width: 2; }
.again { fill: none; stroke: #1a7f37; stroke-width: 2; }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.5; }
.head { fill: #57606a; }
.wall { stroke: #57606a; stroke-width: 2; stroke-dasharray: 2 5; }
.box { fill: #57606a; stroke: #57606a; fill-opacity: 0.07; }
.blue { fill: #0969da; stroke: #0969da; fill-opacity: 0.1; }
.amber { fill: #9a6700; stroke: #9a6700; fill-opacity: 0.1; }
.green { fill: #1a7f37; stroke: #1a7f37; fill-opacity: 0.1; }
.red { fill: #cf222e; stroke: #cf222e; fill-opacity: 0.06; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9da7b3; } .axis, .wall, .arrow { stroke: #9da7b3; }
  .max { stroke: #d29922; } .used { stroke: #58a6ff; } .window { fill: #58a6ff; }
  .granted { fill: #3fb950; } .denied { stroke: #f85149; } .again { stroke: #3fb950; }
  .head { fill: #9da7b3; } .box { fill: #9da7b3; stroke: #9da7b3; }
  .blue { fill: #58a6ff; stroke: #58a6ff; } .amber { fill: #d29922; stroke: #d29922; }
  .green { fill: #3fb950; stroke: #3fb950; } .red { fill: #f85149; stroke: #f85149; }
}
"""
LINE = 16
# Widths of a character in a wide font, as parts of the font's size.
SANS, BOLD, MONOSPACE = 0.575, 0.66, 0.61


class Picture:
    """An SVG under construction. Places are in pixels from the upper left corner."""

    def __init__(self, width, height, title, description):
        self.width, self.height = width, height
        self.texts, self.segments = [], []
        self.out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{STYLE}</style>",
        ]

    def text(self, x, y, words, style="small", anchor="start", room=None):
        """One line of text whose foot is at `y`; `room` is how wide it may be."""
        size = 12 if "small" in style else 13
        part = MONOSPACE if "code" in style else BOLD if "strong" in style else SANS
        width = len(words) * size * part
        if room is not None and width > room:
            sys.exit(f"“{words}” needs {width:.0f} pixels, and there are {room:.0f}")
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        self.texts.append((words, left, y - size + 2, left + width, y + 2))
        style = f' class="{style}"' if style else ""
        anchor = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.out.append(f'<text x="{number(x)}" y="{number(y)}"{style}{anchor}>{escape(words)}</text>')

    def lines(self, x, y, lines, style="small", anchor="start"):
        for row, words in enumerate(lines):
            self.text(x, y + row * LINE, words, style, anchor)

    def line(self, *points, style="arrow"):
        """A line through points."""
        self.segments += zip(points, points[1:])
        path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self.out.append(f'<polyline class="{style}" points="{path}"/>')

    def arrow(self, *points):
        """An arrow through points; its parts are horizontal and vertical."""
        self.line(*points)
        (from_x, from_y), (x, y) = points[-2:]
        along = ((x > from_x) - (x < from_x), (y > from_y) - (y < from_y))
        across = (along[1], along[0])
        corners = [(x, y)]
        for side in (4, -4):
            corners.append(tuple(end - 8 * a + side * b for end, a, b in zip((x, y), along, across)))
        path = "L".join(f"{number(x)} {number(y)}" for x, y in corners)
        self.out.append(f'<path class="head" d="M{path}Z"/>')

    def box(self, x, y, width, height, style="box", title=None, lines=(), radius=5):
        """A box with a title and small lines in its middle."""
        left, top, right, bottom = x, y, x + width, y + height
        corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        self.segments += zip(corners, corners[1:])
        self.out.append(
            f'<rect class="{style}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}" rx="{radius}"/>'
        )
        rows = [(title, "strong")] if title else []
        rows += [(words, "small") for words in lines]
        foot = y + (height - LINE * len(rows)) / 2 + 12
        for row, (words, kind) in enumerate(rows):
            self.text(x + width / 2, foot + row * LINE, words, kind, "middle", room=width - 6)

    def span(self, left, right, top, bottom, style="window"):
        """A shaded span of time. Texts may lie across its edges."""
        self.out.append(
            f'<rect class="{style}" x="{number(left)}" y="{number(top)}" '
            f'width="{number(right - left)}" height="{number(bottom - top)}"/>'
        )

    def granted(self, x, y):
        self.out.append(f'<circle class="granted" cx="{number(x)}" cy="{number(y)}" r="4.5"/>')

    def again(self, x, y):
        self.out.append(f'<circle class="again" cx="{number(x)}" cy="{number(y)}" r="4"/>')

    def denied(self, x, y):
        left, right, top, bottom = (number(at) for at in (x - 4, x + 4, y - 4, y + 4))
        path = f"M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}"
        self.out.append(f'<path class="denied" d="{path}"/>')

    def svg(self):
        self.check()
        return "\n".join([*self.out, "</svg>"]) + "\n"

    def check(self):
        for index, (words, left, top, right, bottom) in enumerate(self.texts):
            if left < 0 or top < 0 or right > self.width or bottom > self.height:
                sys.exit(f"“{words}” is cut off")
            for other, *area in self.texts[:index]:
                if left < area[2] and area[0] < right and top < area[3] and area[1] < bottom:
                    sys.exit(f"“{words}” overlaps “{other}”")
            for (x, y), (to_x, to_y) in self.segments:
                steps = int(max(abs(to_x - x), abs(to_y - y), 1))
                for step in range(steps + 1):
                    at_x, at_y = x + (to_x - x) * step / steps, y + (to_y - y) * step / steps
                    if left < at_x < right and top + 1 < at_y < bottom - 1:
                        sys.exit(f"a line goes through “{words}” at {at_x:.0f}, {at_y:.0f}")


def number(value):
    """A number of an SVG: to a tenth, and short."""
    return f"{round(value, 1):g}"


def escape(words):
    return html.escape(words, quote=False)


def draw_all(pictures, script, about):
    """Draws the pictures into their folder, or compares them with it. `pictures` has a function that
    draws for each name."""
    arguments = argparse.ArgumentParser(description=about)
    arguments.add_argument("--check", action="store_true")
    is_check = arguments.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    for name, draw in pictures.items():
        path, picture = FOLDER / f"{name}.svg", draw()
        if not is_check:
            path.write_text(picture)
        elif not path.exists() or path.read_text() != picture:
            sys.exit(f"{path.name} is not what {script} draws: run {script}, and commit the pictures")
