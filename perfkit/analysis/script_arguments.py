"""Arguments of scripts as short text, and what tells them apart."""

import hashlib
import re
import shlex
from collections.abc import Iterable, Sequence

from perfkit.measuring.format import plain, shortened


def arguments_text(arguments: str, longest: int = 60) -> str:
    """Return the arguments of a script, untrusted text, on one short line; empty without
    arguments."""
    return shortened(plain(arguments), longest) if arguments else ""


def script_options(arguments: str) -> list[str]:
    """Return the arguments of a script as options, each with its values: "--lr 0.1"."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        # Foreign text without its closing quotation mark.
        words = arguments.split()
    options: list[str] = []
    for word in words:
        is_option = re.match(r"--?[^\d\W]", word)
        if is_option or not options:
            options.append(shlex.quote(word))
        else:
            options[-1] += f" {shlex.quote(word)}"
    return options


def own_options(arguments: str, others: Iterable[str]) -> list[str]:
    """Return the options of a script that not all `others` have."""
    options_of_others = [script_options(other) for other in others]
    own = []
    for option in script_options(arguments):
        if not all(option in options for options in options_of_others):
            own.append(option)
    return own


def lacking_options(arguments: str, others: Iterable[str]) -> list[str]:
    """Return the options that a script lacks and some of the `others` have."""
    options = script_options(arguments)
    lacking: dict[str, None] = {}
    for other in others:
        lacking |= dict.fromkeys(script_options(other))
    return [option for option in lacking if option not in options]


def telling_apart(values: Iterable[str], longest: int = 40) -> dict[str, str]:
    """Return value -> text of at most `longest` characters, which different values do not
    share: their beginnings or, if these are alike, the words in which they differ, their ends,
    or their digests."""
    different = [*dict.fromkeys(filter(None, values))]
    beginnings = [shortened(value, longest) for value in different]
    ends = [f"…{value[1 - longest :]}" for value in different]
    digests = [hashlib.sha256(value.encode()).hexdigest()[:8] for value in different]
    for texts in (beginnings, _differing_words(different), ends):
        are_different = all(texts) and len({*texts}) == len(texts)
        if are_different and all(len(text) <= longest for text in texts):
            return {"": ""} | dict(zip(different, texts, strict=True))
    return {"": ""} | dict(zip(different, digests, strict=True))


def _differing_words(values: Sequence[str]) -> list[str]:
    """Return of each text only the words that some of the others lack, an option together with
    its values."""
    options = [script_options(value) for value in values]
    shared = {*options[0]}.intersection(*options) if options else set()
    return [" ".join(word for word in words if word not in shared) for words in options]
