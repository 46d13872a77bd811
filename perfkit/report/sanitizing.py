"""HTML and Markdown of a user's cells, without what pages don't allow."""

import re

TAGS = {
    *("a", "abbr", "b", "blockquote", "br", "caption", "code", "dd", "details", "div", "dl"),
    *("dt", "em", "h1", "h2", "h3", "h4", "hr", "i", "img", "li", "ol", "p", "pre", "small"),
    *("span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "th", "thead", "tr"),
    "ul",
}
"""HTML elements allowed in text and outputs of a user's cells."""
ATTRIBUTES = {
    "*": {"class", "id"},
    "a": {"href"},
    "img": {"alt", "src"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan"},
}
"""Attributes allowed in these elements."""
LINK_SCHEMES = {"http", "https", "mailto"}
"""Schemes allowed in links; images, which the page's policy keeps to `data`, have it too."""
IGNORED_IN_ADDRESSES = re.compile(r"[\x00-\x20]")
"""Characters that browsers ignore in the scheme of an address."""


def sanitized(html: str) -> str:
    """Return a user's HTML without scripts, styles, and elements, attributes and addresses that
    are not allowed."""
    # Most pages have no user's cells and need no sanitizer.
    import nh3

    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=_without_data_link,
        url_schemes=LINK_SCHEMES | {"data"},
        link_rel=None,
    )


def _without_data_link(_element: str, attribute: str, value: str) -> str | None:
    """Return an attribute's value, but None for a link to a document within the link, which
    could have scripts. Addresses have an allowed scheme or none."""
    address = IGNORED_IN_ADDRESSES.sub("", value).lower()
    if attribute == "href" and address.startswith("data:"):
        return None
    return value


def markdown2html(source: str) -> str:
    """Convert Markdown of a user's cell and sanitize the result: sanitizing the source would
    escape its quotations and code."""
    # The import takes longer than the conversion, and most pages have no such cell.
    from nbconvert.filters import markdown2html

    return sanitized(str(markdown2html(source)))
