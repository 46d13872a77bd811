"""Logs of other suites: read and audited.

log.py           a log: windows of steps from its prints, facts, reported figures
formats.py       formats, defined in formats.toml or on the command line
config_facts.py  the configuration in a log, by facts.toml, with its sources
documents.py     reported figures; JSON objects, tables, MLPerf's events
reader.py        files to logs
recompute.py     every throughput of a log, by each statistic that suites use
claims.py        claimed numbers against these figures, down to the steady throughput
findings.py      findings about logs; the sentences are in findings.toml
dlperf.py        DLPerf's own summary of a folder in its layout
audit.py         the stored form of an audit
auditing.py      files to an audit
wording.py       sentences, words for figures, an audit for a terminal by audit.txt.j2
"""
