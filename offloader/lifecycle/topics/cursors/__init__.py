"""Subscriptions: what each holds back, and the removal of those that nobody uses."""
