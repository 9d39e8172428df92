"""What operators trip over on the first day, each with its remedy: pure checks of facts that `probes.py` gathers."""
