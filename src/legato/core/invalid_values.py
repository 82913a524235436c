"""Says in plain words which values are valid. Pure.

The library that checks settings and requests names its own types: "Input should be a valid integer, unable to parse
string as an integer".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_WORDS: Final[Sequence[tuple[str, str]]] = (
    (r"Field required", "is missing"),
    (r"Extra inputs are not permitted", "is not known"),
    (r"Value error, ", ""),
    (r"Input should be a valid integer\b.*", "must be a whole number"),
    (r"Input should be a valid number\b.*", "must be a number"),
    (r"Input should be a valid boolean\b.*", "must be true or false"),
    (r"Input should be a valid string\b.*", "must be a text"),
    (r"Input should be a valid (?:dictionary|object)\b.*", "must be an object"),
    (r"Input should be a valid (?:list|tuple)\b.*", "must be a list"),
    (r"Input should be greater than or equal to ", "must be at least "),
    (r"Input should be less than or equal to ", "must be at most "),
    (r"(?:Input|String|List|Dictionary|Tuple) should ", "must "),
)


def describe_rule(message: str) -> str:
    """Return what the library says of a value as the end of a sentence that begins with the name of the value.

    >>> [describe_rule(f"Input should be {rule}") for rule in ("greater than or equal to 1", "'fair' or 'fifo'")]
    ['must be at least 1', "must be 'fair' or 'fifo'"]
    >>> describe_rule("Input should be a valid integer, unable to parse string as an integer")
    'must be a whole number'
    >>> describe_rule("Field required"), describe_rule("String should have at most 100 characters")
    ('is missing', 'must have at most 100 characters')
    """
    for pattern, words in _WORDS:
        message = re.sub(rf"^{pattern}", words, message)
    return message


def describe_value(name: str, message: str) -> str:
    """Return a sentence, without its end, on a value that the library refuses.

    >>> describe_value("port", "Input should be less than or equal to 65535")
    'port must be at most 65535'
    >>> describe_value("command", "Value error, no closing quotation")
    'command: no closing quotation'
    """
    rule = describe_rule(message)
    return f"{name}{' ' if rule.startswith(('must ', 'is ')) else ': '}{rule}"
