"""English sentences of stored results, in the current language."""

import re
from functools import cache

from perfkit.text.language import current, gettext

PHRASES = (
    "given by hand",
    "given by hand; %(by)s says %(value)s",
    "its format",
    "its name",
    "line %(line)s",
    "nodes x devices",
    "ranks / nodes",
    "ranks / devices",
    "global_batch_size / ranks",
    "the last step",
    "a running mean since step %(step)s",
    "the steps since the last print, from step %(step)s on",
    "the last line has no end: the file may be cut off in it",
    "the line is longer than %(bytes)s bytes: its rest was left out",
    "%(count)s NUL bytes were left out",
    "lines of another format are left out: %(format)s",
    "%(name)s is %(value)s by %(by)s, but %(other)s by %(whom)s",
    "%(how)s is %(value)s, but %(by)s says %(name)s %(other)s",
    "%(file)s, %(by)s",
)
"""What importers say of a log; the first that a text is an instance of is taken."""
WHO_SAYS = ("by", "whom", "how")
"""What in a phrase is one itself; the rest is names and values, which stay as they are."""
LONGEST = 300
"""A text of more characters is none of them: logs are foreign, and matching has its cost."""


def recorded(text: str) -> str:
    """The text in the current language if it is one of PHRASES, else unchanged."""
    if current() == "en" or len(text) > LONGEST:
        return text
    for phrase in PHRASES:
        if match := _pattern(phrase).fullmatch(text):
            told = match.groupdict()
            told |= {name: recorded(told[name]) for name in WHO_SAYS if name in told}
            return gettext(phrase) % told
    return text


@cache
def _pattern(phrase: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", phrase)
    names = [f"(?P<{part}>.+)" if k % 2 else re.escape(part) for k, part in enumerate(parts)]
    return re.compile("".join(names), re.DOTALL)
