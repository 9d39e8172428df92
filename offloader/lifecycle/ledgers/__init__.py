"""BookKeeper's ledgers: what each is for, who refers to it, and which of them are orphans."""
