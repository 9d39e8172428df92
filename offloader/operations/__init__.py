"""What operators do with an archive: verify, rebuild, restore, export, peek, and the doctor."""
