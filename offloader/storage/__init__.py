"""Object stores behind one small interface, one module each. Only here is a store's SDK imported."""
