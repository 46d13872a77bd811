"""Text as lines of a terminal."""

import textwrap

WIDTH = 80


def wrapped(line: str, indent: str = "") -> str:
    """`line` in lines of WIDTH, at `indent`; words longer than that stay whole."""
    return textwrap.fill(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def plain(text: str) -> str:
    """Foreign text on one line, without what would steer the terminal."""
    line = " ".join(text.split())
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)
