"""What an operator trips over on the first day, each with its remedy: pure checks over facts that `world` gathers."""
