"""The composition root: connections and services, constructed from the configuration."""
