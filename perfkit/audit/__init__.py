"""Logs of other suites: read and audited.

printed.py         quantities that lines print besides their time, in their stored form
numbers.py         numbers and times as logs spell them
figure.py          one throughput of a log, in its stored form
statements.py      what an audit states: origins of facts, and findings, each with its sentence
print_facts.py     facts that stand in each print
rolling.py         times of steps from means over a log's own window
log.py             a log: windows of steps from its prints, facts, reported figures
formats.py         formats, defined in formats.toml
custom_format.py   a format defined on the command line
config_facts.py    the configuration in a log, by facts.toml, with its sources
fact_rules.py      facts of a log that follow from others
parameters.py      facts that the command line states
reported.py        figures that logs report as their own results
records.py         files of records: JSON lines, a JSON document, a table
general.py         a format for everyday lines, by the names in them
mlperf.py          MLPerf's events
reader.py          files to logs
samples.py         the samples or tokens of a step
steps.py           a log's steps, and the periods they belong to
timed.py           the seconds of steps, by printed times and by the lines' clock
recompute.py       every throughput of a log, by each statistic that suites use
answer.py          the answer of a log: throughput and seconds per step, for one line
claim.py           a claim and the numbers of its log, in their stored form
quantity.py        claims as people write them: a number with a unit
log_numbers.py     the numbers of a log in one quantity, such as MFU
claims.py          claims against these numbers, and the way from them to the answer
claim_alone.py     a claim without a log: what it means, and whether it is possible
levels.py          a change of level among the steps of an answer
slow_windows.py    pauses among these steps, and the change of their level
matching.py        published numbers and the logs that match them
rate_check.py      printed rates against batch and time
findings.py        findings about one log
print_count.py     the steps of a log while it is written
log_steps.py       the steps of a command's log as the events of a rank
follow.py          runs a command and follows its log
audit.py           the stored form of an audit
auditing.py        files to an audit
"""
