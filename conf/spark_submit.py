"""The command `offloader` as a file, for `spark-submit conf/spark_submit.py run --config FILE` (docs/spark.md)."""

from offloader.cli.main import main

if __name__ == "__main__":
    main()
