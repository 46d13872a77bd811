"""Pages, notebook outputs and texts of a terminal. This package reads results; it computes no
numbers.

blocks.py       paragraphs, lists, tables and figures, as data; section.py: a sequence of them
elements.py     makes sections of one block; marks, links and other inline text
html.py, terminal.py, section.py   show blocks on pages, terminals and in notebooks
style.py        style of the charts
rendering.py    templates; sanitizing.py, cells.py: cells of a user's notebook
pages.py        HTML pages from notebooks; contents.py: list of a page's sections
links.py        links between the pages of an outputs folder
site.py         writes one page, or all pages of an outputs folder with their index
measurement.py  page of a measurement: tiles.py, steps.py, step_charts.py, setup.py, peaks.py,
                told.py, verification.py; checked.py: with the checks of its raw files
                profile.py: where the step goes
comparison.py   of a comparison; verdicts.py: verdicts in words
references.py   measurements beside published numbers, or the user's own references
history.py      of the series over time
fleet.py        of a fleet's nodes
audit.py        of an audit: audit_summary.py, audited_logs.py, audited_claims.py; its texts:
                audit_answer.py, audit_text.py; formats.py: the log formats
summary.py      of all measurements: rankings.py, curves.py; summarized.py: its data
published.py    of the published tables: published_cells.py, published_charts.py
index.py        of an outputs folder: index_rows.py, distinctions.py
diagnosis.py    section of a diagnosis, and the command for one
words.py        numbers and warnings in words
exploring.py    tables for explore.ipynb
"""
