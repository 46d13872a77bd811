"""Logs of other suites: read, audited, imported; and measurements exported for other tools.

log.py           what a log says: windows of steps, by its prints; facts, its own figures
formats.py       formats, which formats.toml has as data, and one given on the command line
config_facts.py  what a log tells of its configuration, by facts.toml, and who says it
documents.py     figures that logs give themselves; JSON objects, tables, MLPerf's events
reader.py        files to logs
recompute.py     every throughput that a log gives, by each statistic that suites use
claims.py        a claimed number against these, and down to the steady throughput
findings.py      what is odd about a log; the sentences are in findings.toml
dlperf.py        DLPerf's own summary of a folder in its layout
audit.py         an audit as it is stored
auditing.py      files to an audit
wording.py       sentences, words for figures, an audit for a terminal by audit.txt.j2
importing.py     logs as a measurement
export.py        measurements as other tools write theirs, series as Apache Otava reads them
"""
