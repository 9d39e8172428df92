"""Pulsar's own classes read bridged objects, without a broker around them."""
