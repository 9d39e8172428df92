"""How the running application stands, for people: the page that `offloader run` serves beside its metrics."""
