"""The simplepipe as a flow on Spark: the same filter, in Go, and every number exactly once.

(cd examples/simplepipe/filter && go build -o filter .)
millstream run examples/simplepipe/flow.py --until-end
"""

import millstream as ms

flow = ms.Flow("simplepipe")

numgen = flow.source("numgen", ms.rate(5000, rows=20_000), time="at")

# The filter takes numbers of four bytes, the most important first.
numbers = numgen.sql(
    "numbers", "SELECT at, unhex(lpad(hex(value + 1), 8, '0')) AS number FROM numgen"
)

FILTER = "./filter/filter"
filter2 = numbers.action(
    "filter2", [FILTER, "--mod", "2"], input="number", output="number binary", format="raw"
)
filter3 = filter2.action(
    "filter3", [FILTER, "--mod", "3"], input="number", output="number binary", format="raw"
)

READ = "SELECT at, CAST(conv(hex(number), 16, 10) AS BIGINT) AS number FROM {}"
filter2.sql("even", READ.format("filter2")).sink("printer2", ms.jsonl("out/flow-printer2"))
filter3.sql("sixes", READ.format("filter3")).sink("printer6", ms.jsonl("out/flow-printer6"))
