"""What operators do with an archive: verify, rebuild, restore, export, and the doctor."""
