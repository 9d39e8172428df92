"""Writes conf/kubernetes from the chart: `python -m integration.chart.manifests`."""

from __future__ import annotations

import re

from integration.chart.helm import CHART, REPOSITORY, template

FOLDER = REPOSITORY / "conf" / "kubernetes"
MANIFESTS = {
    "offloader.yaml": (),
    "offloader-with-gateway.yaml": (CHART / "ci" / "gateway-values.yaml",),
}
_HEAD = """\
# Made of the chart in conf/helm/pulsar-offloader by `python -m integration.chart.manifests`: see docs/kubernetes.md.
# Change the ConfigMap and the image, then: kubectl apply --namespace NAMESPACE --filename FILE
"""
_HELMS = re.compile(r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)


def manifest(name: str) -> str:
    """A file of conf/kubernetes: what Helm would install, without Helm's own marks."""
    return _HEAD + _HELMS.sub("", template(*MANIFESTS[name]))


if __name__ == "__main__":
    for name in MANIFESTS:
        (FOLDER / name).write_text(manifest(name))
