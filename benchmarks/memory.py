from benchmarks.figures import Report
from benchmarks.options import Options


def run(options: Options) -> Report: ...
