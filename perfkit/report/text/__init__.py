"""Wording of results for terminals, notebooks and pages.

language.py  current language and gettext
statements.py  sentences of statements in the current language
names.py     names of results, devices and configurations, and commands, as text
wording.py     facts and parameters, columns of `perfkit.load`, in words
"""
