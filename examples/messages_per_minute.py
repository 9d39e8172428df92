"""Reads an archived topic into a Spark DataFrame and plots messages per minute and bytes by key to a PNG.

    make setup
    .venv/bin/python examples/messages_per_minute.py --root file:///var/lib/archive \
        --topic persistent://public/orders/payments --png orders.png

No broker is needed: only the archive's bucket or folder. Run it cell by cell in an editor that knows `# %%`, or as a
script.
"""

# %% What to read
import argparse
import os
import sys
from datetime import timedelta

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers need this interpreter's packages

from matplotlib import pyplot as plt
from matplotlib.dates import ConciseDateFormatter
from matplotlib.ticker import EngFormatter
from pyspark.sql import SparkSession
from pyspark.sql.functions import coalesce, col, count, date_trunc, length, lit
from pyspark.sql.functions import sum as sum_

parser = argparse.ArgumentParser(description="Messages per minute and bytes by key of an archived topic.")
parser.add_argument("--root", required=True, help="the archive: file://, s3:// or another URL")
parser.add_argument("--topic", required=True, help="a topic, or a partitioned topic's name")
parser.add_argument("--endpoint", default="", help="of an S3-compatible store")
parser.add_argument("--png", default="messages.png", help="where the picture goes")
parser.add_argument("--keys", type=int, default=10, help="how many keys to show")
options = parser.parse_args()

# %% A DataFrame of messages. Nothing is registered: Spark finds the source `pulsar-archive` by itself
settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
settings["spark.python.unix.domain.socket.enabled"] = "true"  # faster: see docs/reading.md
spark = SparkSession.builder.master("local[2]").appName("messages per minute").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("WARN")
reader = spark.read.format("pulsar-archive").option("root", options.root).option("topics", options.topic)
if options.endpoint:
    reader = reader.option("endpoint", options.endpoint)
messages = reader.load()
messages.printSchema()

# %% One pass for both figures' data
key = coalesce(col("__key").cast("string"), lit("(none)"))
facts = messages.select(
    date_trunc("minute", "__publishTime").alias("minute"),
    key.alias("key"),
    coalesce(length("value"), lit(0)).alias("bytes"),
)
sums = facts.groupBy("minute", "key").agg(count("*").alias("messages"), sum_("bytes").alias("bytes")).toPandas()
if sums.empty:
    sys.exit(f"{options.topic} has no messages in {options.root}")
per_minute = sums.groupby("minute")["messages"].sum().resample("min").sum()  # minutes without messages are zeros
by_key = sums.groupby("key")["bytes"].sum().sort_values(ascending=False).head(options.keys)

# %% The picture
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
begin, end = per_minute.index[0], per_minute.index[-1] + timedelta(minutes=1)
left.fill_between([*per_minute.index, end], [*per_minute, per_minute.iloc[-1]], step="post")
left.set(title=f"messages per minute, {per_minute.sum():,} in all", xlabel="publish time (UTC)", ylabel="messages")
left.set(xlim=(begin, end), ylim=(0, None))
left.xaxis.set_major_formatter(ConciseDateFormatter(left.xaxis.get_major_locator()))
right.barh([str(k) for k in by_key.index][::-1], by_key.to_numpy()[::-1])
right.set(title=f"bytes by key, the {len(by_key)} largest", xlabel="bytes of values")
right.xaxis.set_major_formatter(EngFormatter("B"))
figure.suptitle(options.topic)
figure.savefig(options.png, dpi=120)
print(f"{options.png}: {per_minute.sum():,} messages, {len(per_minute):,} minutes, {sums['key'].nunique():,} keys")
spark.stop()
