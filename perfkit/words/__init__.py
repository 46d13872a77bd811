"""How things are said: to terminals, in notebooks and on pages.

language.py  which language is spoken; languages/ has the translations
wording.py   numbers, names and commands as a reader is to see them
recorded.py  sentences that stand in results in English
lines.py     lines of a terminal
"""
