"""What the application tells about itself: Prometheus metrics, and whether it is alive and ready."""

from offloader.metrics.health import Health
from offloader.metrics.metrics import Metrics
from offloader.metrics.topics import TopicLag

__all__ = ["Health", "Metrics", "TopicLag"]
