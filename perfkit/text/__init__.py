"""How results are worded, for terminals, notebooks and pages.

language.py  the current language, and gettext
messages.py  the sentence and the severity of each warning code
format.py    numbers, names and commands as text
terminal.py  lines of a terminal
"""
