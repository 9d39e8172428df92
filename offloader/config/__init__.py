"""The configuration file: settings of the application, and policies at three levels."""

from offloader.config.config import Config
from offloader.config.levels import Level, Rates, TopicPolicy
from offloader.config.policies import Policies, Resolved, namespace_switch

__all__ = ["Config", "Level", "Policies", "Rates", "Resolved", "TopicPolicy", "namespace_switch"]
