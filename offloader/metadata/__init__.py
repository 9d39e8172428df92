"""The metadata log and its two uses: the journal (what the running application must not forget) and the catalog (what
is offloaded)."""
