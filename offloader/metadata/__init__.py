"""The metadata log: the journal (what the application must not forget) and the catalog (what is offloaded)."""
