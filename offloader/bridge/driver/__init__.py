"""The bridge in the running application: a feature of its driver."""
